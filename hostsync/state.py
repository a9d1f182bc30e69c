"""What is remembered between orders: known-bad releases and the history, per agent."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from hostsync.errors import DiskError
from hostsync.ports import Fs
from hostsync.record import Source

HISTORY_LIMIT = 200
"""Orders remembered; the oldest is dropped beyond that."""
KNOWN_BAD_LIMIT = 100
LINE_LIMIT = 128 << 10
"""A line of history longer than this many bytes is not ours."""


class Outcome(StrEnum):
    """How an order ended."""

    COMPLETE = "complete"
    ROLLED_BACK = "rolled-back"
    NOT_RESTORED = "not-restored"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class KnownBad(msgspec.Struct, frozen=True, kw_only=True):
    """A release that was judged bad on this host; `at` in seconds since the epoch."""

    digest: str
    version: str
    reason: str
    at: float


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `state.json`."""

    schema: int = 1
    known_bad: list[KnownBad] = []


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ended order. Times are seconds since the epoch."""

    order: str
    agent: str
    source: Source
    version: str
    digest: str
    previous_version: str
    outcome: Outcome
    reason: str = ""
    started_at: float
    ended_at: float
    evidence: list[str] = []


class State:
    """The remembered state of one agent on disk."""

    def __init__(self, directory: Path, fs: Fs) -> None:
        self._directory = directory
        self._fs = fs
        self._state = directory / "state.json"
        self._history = directory / "history.jsonl"

    def known_bad(self) -> tuple[KnownBad, ...]:
        """Releases judged bad here, oldest first; none when the file is missing or damaged.

        A damaged file loses a convenience, not a safeguard: the judge still stands. Raises
        DiskError when there is one that cannot be read.
        """
        try:
            return tuple(msgspec.json.decode(_read(self._state), type=Remembered).known_bad)
        except msgspec.DecodeError:
            return ()

    def mark_bad(self, bad: KnownBad) -> None:
        """Remember a release as bad; the newest reason for a digest replaces an older one."""
        kept = [b for b in self.known_bad() if b.digest != bad.digest]
        self._store([*kept, bad][-KNOWN_BAD_LIMIT:])

    def forgive(self, digest: str) -> None:
        """Forget that a release was bad; nothing to do when it was not."""
        known = self.known_bad()
        kept = [b for b in known if b.digest != digest]
        if len(kept) != len(known):
            self._store(kept)

    def history(self) -> tuple[HistoryLine, ...]:
        """Ended orders, oldest first; a line that cannot be understood is left out.

        Raises DiskError when the file is there and cannot be read.
        """
        lines = map(_history_line, self._history_lines())
        return tuple(line for line in lines if line is not None)

    def find(self, order: str) -> HistoryLine | None:
        """The end of an order, None while it has none."""
        return next((line for line in reversed(self.history()) if line.order == order), None)

    def append(self, line: HistoryLine) -> None:
        """Remember how an order ended; once, however often it is called for that order."""
        known = self._history_lines()
        if any(old is not None and old.order == line.order for old in map(_history_line, known)):
            return
        # Lines are kept as they are: a newer release may have written more than we understand.
        kept = [*known, msgspec.json.encode(line)][-HISTORY_LIMIT:]
        self._fs.make_directory(self._directory, 0o700)
        self._fs.write(self._history, b"".join(one + b"\n" for one in kept), 0o600)

    def _history_lines(self) -> list[bytes]:
        lines = _read(self._history).split(b"\n")
        return [line for line in lines if 0 < len(line) <= LINE_LIMIT]

    def _store(self, known_bad: list[KnownBad]) -> None:
        self._fs.make_directory(self._directory, 0o700)
        data = msgspec.json.format(msgspec.json.encode(Remembered(known_bad=known_bad)))
        self._fs.write(self._state, data + b"\n", 0o600)


def _read(path: Path) -> bytes:
    """The content of a file, empty when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DiskError(
            f"cannot read {path}: {error.strerror}", remedy="run as root; it is a file of hostsync"
        ) from error


def _history_line(raw: bytes) -> HistoryLine | None:
    try:
        return msgspec.json.decode(raw, type=HistoryLine)
    except msgspec.DecodeError:
        return None
