"""The one lock of a host: every verb that changes something holds it.

An flock dies with its holder, so a killed process never leaves it behind. The file's content
only says who holds it, for the message that a second verb prints.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hostsync.errors import Busy, DiskError

LOCK_NAME = "lock"
_NOTE_LIMIT = 512


@contextmanager
def held(run_root: Path, purpose: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the host's lock for the duration.

    `purpose` names the verb and order for whoever finds the lock taken. Without `wait` a taken
    lock raises Busy naming its holder; with it, blocks until the holder lets go or dies.
    """
    path = run_root / LOCK_NAME
    try:
        run_root.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _take(fd, path, wait=wait)
        _note(fd, f"{purpose} (pid {os.getpid()})\n")
        try:
            yield
        finally:
            _note(fd, "")
    finally:
        os.close(fd)


def _take(fd: int, path: Path, *, wait: bool) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        holder = os.pread(fd, _NOTE_LIMIT, 0).decode(errors="replace").strip()
        raise Busy(
            f"busy: {holder or 'another command'} holds {path}",
            remedy="wait for it to end (`hostsync status` shows it) and order again",
        ) from None
    except OSError as error:
        raise _unusable(path, error) from error


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
