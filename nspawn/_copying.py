"""Copying a file or a tree beneath a directory descriptor.

The destination's owner may be hostile, so every name is created exclusively and every directory
entered without following links. The source is held to the same: regular files and directories
are copied, anything else is refused rather than guessed at.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePath

import msgspec

from nspawn import _regular
from nspawn._linux import Resolve, openat2
from nspawn._refusal import unsafe

PLAIN = Resolve.BENEATH | Resolve.NO_SYMLINKS | Resolve.NO_MAGICLINKS
"""A walk that stays beneath its start and follows no link at all."""

MAX_DEPTH = 64
"""Deeper trees are refused: each level costs descriptors and a stack frame."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_WHOLE = 1 << 30
_NO_FAST_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
)


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the source and the one it is copied into."""

    source: int
    target: int
    path: PurePath
    depth: int


def copy(source: Path, target: int, name: str) -> None:
    """Copy `source` to a new `name` in the directory `target`; nothing is flushed yet.

    Permission bits are kept, setuid, setgid and sticky dropped; the caller owns everything.
    Raises FileNotFoundError when the source is missing, UnsafePath for a link, a device, a
    name with control characters or too deep a tree, OSError.
    """
    parent = os.open(source.parent, _DIRECTORY | os.O_CLOEXEC)
    try:
        pair = _Pair(source=parent, target=target, path=source.parent, depth=0)
        _copy_entry(pair, source.name, name)
    finally:
        os.close(parent)


def own(fd: int, mode: int) -> None:
    """Give what `fd` is open on the permission bits of `mode` and to the caller."""
    # A set-group-id parent would have passed its group on, and the umask took bits away.
    os.fchown(fd, os.geteuid(), os.getegid())
    os.fchmod(fd, mode & 0o777)


def new_file(directory: int, name: str) -> int:
    """A write descriptor of a file that did not exist, readable by nobody else yet."""
    return os.open(name, _NEW_FILE, 0o600, dir_fd=directory)


def new_directory(parent: int, name: str) -> int:
    """A descriptor of a directory that did not exist, closed to everybody else yet.

    Raises FileExistsError.
    """
    os.mkdir(name, 0o700, dir_fd=parent)
    return openat2(parent, name, _DIRECTORY, resolve=PLAIN)


def plain_name(name: str) -> bool:
    """Whether a name is printable text, so that a listing of names has one reading only."""
    return name.isprintable()


def _copy_entry(pair: _Pair, old: str, new: str) -> None:
    what = pair.path / old
    if not plain_name(old):
        raise unsafe(what, "its name has characters that are not printable")
    mode = os.stat(old, dir_fd=pair.source, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        _copy_directory(pair, old, new)
    else:
        with _regular.opened(pair.source, old, PLAIN, what) as fd:
            _copy_file(fd, pair.target, new)


def _copy_directory(pair: _Pair, old: str, new: str) -> None:
    what = pair.path / old
    if pair.depth >= MAX_DEPTH:
        raise unsafe(what, f"the tree is deeper than {MAX_DEPTH} levels")
    source = openat2(pair.source, old, _DIRECTORY, resolve=PLAIN)
    try:
        target = new_directory(pair.target, new)
        try:
            inner = _Pair(source=source, target=target, path=what, depth=pair.depth + 1)
            for name in sorted(os.listdir(source)):
                _copy_entry(inner, name, name)
            own(target, os.fstat(source).st_mode)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_file(source: int, directory: int, name: str) -> None:
    target = new_file(directory, name)
    try:
        _copy_content(source, target)
        own(target, os.fstat(source).st_mode)
    finally:
        os.close(target)


def _copy_content(source: int, target: int) -> None:
    try:
        while os.copy_file_range(source, target, _WHOLE):
            pass
    except OSError as e:
        if e.errno not in _NO_FAST_COPY:
            raise
    # Where the fast way is not offered, or says nothing without copying (as on /proc), the
    # slow way goes on from the offset reached; after a full copy it finds the end at once.
    while chunk := os.read(source, _regular.CHUNK):
        write_all(target, chunk)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however many calls that takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
