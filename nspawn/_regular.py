"""Opening and reading a regular file that somebody hostile may have put there.

A FIFO would block an ordinary open, and opening a device may do something. An O_PATH
descriptor touches neither, so the kind is checked on it first, and the very same inode is
then reopened through /proc/self/fd.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from nspawn._linux import Resolve, openat2
from nspawn._refusal import NOT_PLAIN, unsafe
from nspawn.errors import TooLarge

CHUNK = 1 << 20
"""Bytes per read."""


@contextmanager
def opened(dir_fd: int, path: str, resolve: Resolve, what: PurePath) -> Iterator[int]:
    """A readable descriptor of the regular file at `path`, walked from `dir_fd`.

    `what` names the file in errors. Raises FileNotFoundError, UnsafePath, OSError.
    """
    try:
        handle = openat2(dir_fd, path, os.O_PATH, resolve=resolve)
    except OSError as e:
        if e.errno in NOT_PLAIN:
            raise unsafe(what, "a link, a mount point or no directory is in the way") from e
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise unsafe(what, "it is not a regular file")
        fd = _reopened(handle, what)
    finally:
        os.close(handle)
    try:
        yield fd
    finally:
        os.close(fd)


def read(fd: int, limit: int, what: PurePath) -> bytes:
    """The whole content, which may have at most `limit` bytes; raises TooLarge."""
    content = bytearray()
    while chunk := os.read(fd, min(CHUNK, limit + 1 - len(content))):
        content += chunk
        if len(content) > limit:
            raise TooLarge(f"{what} has more than {limit} bytes", remedy="look at what wrote it")
    return bytes(content)


def _reopened(handle: int, what: PurePath) -> int:
    try:
        # Without O_NONBLOCK a lease that the owner holds would block the open for 45 seconds.
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except BlockingIOError as e:
        raise unsafe(what, "its owner holds a lease on it") from e
