"""Listing a file or a tree with digests, within limits, without following anything."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import PurePath
from typing import Literal

import msgspec

from nspawn._copying import MAX_DEPTH, PLAIN, plain_name
from nspawn._linux import Resolve, openat2
from nspawn._refusal import NOT_PLAIN, unsafe
from nspawn._regular import CHUNK, opened
from nspawn.errors import TooLarge

_SAME_MOUNT = PLAIN | Resolve.NO_XDEV


class ScannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file or directory as it was found.

    `path` is relative to the scanned name, with `/`, and empty when that is itself a file.
    `mode` are the permission bits with setuid, setgid and sticky; `size` is in bytes, 0 for a
    directory; `sha256` is hexadecimal, empty for a directory.
    """

    path: str
    kind: Literal["file", "directory"]
    mode: int
    size: int
    sha256: str


class Budget(msgspec.Struct, kw_only=True):
    """How much a scan may still read; a hostile owner can make a sparse file of exabytes."""

    size: int
    entries: int

    def spend(self, what: PurePath, *, size: int = 0, entries: int = 0) -> None:
        """Take from the budget; raises TooLarge when it is used up."""
        self.size -= size
        self.entries -= entries
        if self.size < 0 or self.entries < 0:
            raise TooLarge(
                f"{what} goes beyond the limits of a scan", remedy="look at who wrote it"
            )


def scan(directory: int, name: str, what: PurePath, budget: Budget) -> Iterator[ScannedFile]:
    """Every file and directory beneath `name`, a directory before what it holds.

    Raises FileNotFoundError, UnsafePath for anything that is neither a regular file nor a
    directory on the same mount, TooLarge, OSError.
    """
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        yield from _beneath(directory, name, what, budget, PurePath())
    else:
        yield _file(directory, name, what, budget, "")


def _beneath(
    parent: int, name: str, what: PurePath, budget: Budget, inner: PurePath
) -> Iterator[ScannedFile]:
    if len(inner.parts) > MAX_DEPTH:
        raise unsafe(what, f"the tree is deeper than {MAX_DEPTH} levels")
    directory = _opened_directory(parent, name, what)
    try:
        for entry in _names(directory, what, budget):
            path = inner / entry
            status = os.stat(entry, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield _directory(path, status.st_mode)
                yield from _beneath(directory, entry, what / entry, budget, path)
            else:
                yield _file(directory, entry, what / entry, budget, str(path))
    finally:
        os.close(directory)


def _names(directory: int, what: PurePath, budget: Budget) -> list[str]:
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            budget.spend(what, entries=1)
            # A newline in a name could make one listing look like another.
            if not plain_name(entry.name):
                raise unsafe(what / ascii(entry.name), "its name is not printable")
            names.append(entry.name)
    return sorted(names)


def _opened_directory(parent: int, name: str, what: PurePath) -> int:
    try:
        return openat2(parent, name, os.O_RDONLY | os.O_DIRECTORY, resolve=_SAME_MOUNT)
    except OSError as e:
        if e.errno in NOT_PLAIN:
            raise unsafe(what, "it is a mount point, or turned into a link") from e
        raise


def _directory(path: PurePath, mode: int) -> ScannedFile:
    return ScannedFile(path=str(path), kind="directory", mode=stat.S_IMODE(mode), size=0, sha256="")


def _file(directory: int, name: str, what: PurePath, budget: Budget, path: str) -> ScannedFile:
    with opened(directory, name, _SAME_MOUNT, what) as fd:
        status = os.fstat(fd)
        budget.spend(what, size=status.st_size)
        return ScannedFile(
            path=path,
            kind="file",
            mode=stat.S_IMODE(status.st_mode),
            size=status.st_size,
            sha256=_digest(fd, status.st_size, what),
        )


def _digest(fd: int, size: int, what: PurePath) -> str:
    """The SHA-256 of exactly `size` bytes; a file that changes its size meanwhile is refused."""
    digest = hashlib.sha256()
    rest = size
    while chunk := os.read(fd, min(CHUNK, rest + 1)):
        rest -= len(chunk)
        if rest < 0:
            break
        digest.update(chunk)
    if rest != 0:
        raise unsafe(what, "it changed while it was read")
    return digest.hexdigest()
