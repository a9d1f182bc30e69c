"""The one lock of a host: every verb that changes something holds it.

An flock dies with its holder, so a killed process never leaves it behind. The file's content
only says who holds it, for the message that a second verb prints, and whether that is housekeeping
which ends by itself in seconds: a patient verb waits for that, and is turned away by all else.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hostsync.errors import Busy, DiskError
from hostsync.ports import Clock

LOCK_NAME = "lock"
PATIENCE_SECONDS = 30.0
_SILENT_SECONDS = 1.0
_POLL_SECONDS = 0.05
_NOTE_LIMIT = 512
_BRIEF = "\nbrief"


class Patience:
    """A verb's patience with housekeeping; for one attempt to take the lock."""

    def __init__(self, clock: Clock, tell: Callable[[str], None]) -> None:
        self._clock = clock
        self._tell: Callable[[str], None] | None = tell
        self._began = clock.monotonic()

    def bears(self, note: str) -> bool:
        """Wait a moment and return True while the holder with this note is worth waiting for.

        A holder without a note has only just begun, or ends. After a second of it `tell` is told,
        once.
        """
        waited = self._clock.monotonic() - self._began
        if waited >= PATIENCE_SECONDS or (note and not note.endswith(_BRIEF)):
            return False
        if self._tell is not None and note and waited >= _SILENT_SECONDS:
            self._tell(f"waiting for the {note.removesuffix(_BRIEF)} to end")
            self._tell = None
        self._clock.sleep(_POLL_SECONDS)
        return True


@contextmanager
def held(
    run_root: Path,
    purpose: str,
    *,
    wait: bool = False,
    brief: bool = False,
    patience: Patience | None = None,
) -> Iterator[None]:
    """Hold the host's lock for the duration.

    `purpose` names the verb and order for whoever finds the lock taken; `brief` says that it is
    housekeeping. A taken lock raises Busy naming its holder: at once, or with `patience` at its
    end. With `wait` this blocks instead until the holder lets go or dies.
    """
    path = run_root / LOCK_NAME
    try:
        run_root.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _take(fd, path, wait=wait, patience=patience)
        _note(fd, f"{purpose} (pid {os.getpid()}){_BRIEF if brief else ''}\n")
        try:
            yield
        finally:
            _note(fd, "")
    finally:
        os.close(fd)


def _take(fd: int, path: Path, *, wait: bool, patience: Patience | None) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            note = os.pread(fd, _NOTE_LIMIT, 0).decode(errors="replace").strip()
            if patience is None or not patience.bears(note):
                holder = note.removesuffix(_BRIEF) or "another command"
                raise Busy(
                    f"busy: {holder} holds {path}",
                    remedy="wait for it to end (`hostsync status` shows it) and order again",
                ) from None
        except OSError as error:
            raise _unusable(path, error) from error
        else:
            return


def _note(fd: int, text: str) -> None:
    """Say who holds the lock; a full disk must not stop the holder, the lock is held anyway."""
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(errors="backslashreplace")[:_NOTE_LIMIT], 0)


def _unusable(path: Path, error: OSError) -> DiskError:
    return DiskError(
        f"cannot use the lock {path}: {error.strerror}",
        remedy="run as root, and see that the lock is a file in a writable directory",
    )
