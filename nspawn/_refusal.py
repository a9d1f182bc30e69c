"""The door for errors beneath a rootfs: each names the place, the reason and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from nspawn.errors import NoSpace, RootfsError, UnsafePath

NOT_PLAIN = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV})
"""What a bounded walk answers when it meets a link, a file for a directory, or a mount point."""

_REMEDY = {
    errno.EROFS: "mount it read-write, or use another directory",
    errno.EPERM: "look for an immutable flag there, and run as root",
    errno.EACCES: "run as root",
    errno.ENOSYS: "a kernel of at least 5.6 on x86_64 or aarch64 is needed",
}


def unsafe(what: PurePath, why: str) -> UnsafePath:
    """The error for something at `what` that must not be used."""
    remedy = "look at who put it there, then move it aside"
    return UnsafePath(f"refusing {what}: {why}", remedy=remedy)


def component(name: str, where: PurePath) -> str:
    """The name itself when it can be one of an entry of `where`; raises UnsafePath."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise unsafe(where / ascii(name), "that is not the name of an entry")
    return name


@contextmanager
def told(rootfs: Path, inner: PurePath) -> Iterator[None]:
    """Turn what the kernel refuses into an error of this package; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        place = f"{inner} beneath {rootfs}"
        if e.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpace(f"no space for {place}", remedy=f"free some on {rootfs}") from e
        if e.errno in NOT_PLAIN:
            raise unsafe(rootfs / inner, "a link, a mount point or no directory is there") from e
        remedy = _REMEDY.get(e.errno or 0, "see the kernel's log")
        raise RootfsError(f"{place}: {e.strerror}", remedy=remedy) from e
