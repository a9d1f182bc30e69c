"""How far a download is: a line that renews itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from hostsync.cli.session import Session

_MIB = 1 << 20
_TERMINAL_SECONDS, _JSON_SECONDS, _PLAIN_SECONDS = 0.2, 1.0, 10.0
_WIPE = "\r\x1b[K"


class Progress:
    """Shows bytes, rate and time left; `close` takes the line off the terminal."""

    def __init__(
        self,
        session: Session,
        clock: Callable[[], float] = time.monotonic,
        terminal: TextIO | None = None,
    ) -> None:
        stream = sys.stderr if terminal is None else terminal
        self._session = session
        self._clock = clock
        self._terminal = stream if stream.isatty() and not session.as_json else None
        self._every = _JSON_SECONDS if session.as_json else _PLAIN_SECONDS
        if self._terminal:
            self._every = _TERMINAL_SECONDS
        self._first = self._shown_at = clock()
        self._from = self._last = 0
        self._is_drawn = False

    def show(self, done: int, total: int | None) -> None:
        """Tell the bytes that are there, and in all if that is known; mostly does nothing."""
        now = self._clock()
        if done < self._last:
            # The download began anew.
            self._first, self._from = now, done
        self._last = done
        if now - self._shown_at < self._every:
            return
        self._shown_at = now
        rate = (done - self._from) / max(now - self._first, 0.001)
        if self._terminal:
            self._draw(f"{_WIPE}{describe(done, total, rate)}")
            self._is_drawn = True
        else:
            value = {"done": done, "total": total, "bytes_per_second": round(rate)}
            self._session.say(describe(done, total, rate), progress=value)

    def close(self) -> None:
        """Leave a clean line behind; may be repeated."""
        if self._is_drawn:
            self._draw(_WIPE)
            self._is_drawn = False

    def _draw(self, text: str) -> None:
        try:
            if self._terminal:
                self._terminal.write(text)
                self._terminal.flush()
        except OSError:
            # Nobody looks any more; that must not end an order.
            self._terminal = None


def describe(done: int, total: int | None, rate: float) -> str:
    """Progress in words: `3.1 of 12.0 MiB  1.5 MiB/s  0:06 left`."""
    amount = (
        f"{done / _MIB:.1f} MiB"
        if total is None
        else f"{done / _MIB:.1f} of {total / _MIB:.1f} MiB"
    )
    words = ["fetching", amount, f"{rate / _MIB:.1f} MiB/s"]
    if total is not None and rate > 0:
        minutes, seconds = divmod(round((total - done) / rate), 60)
        words.append(f"{minutes}:{seconds:02} left")
    return "  ".join(words)
