"""Files and directories on disk as members: by descriptor, following no link.

Each object is looked at (so that no device is opened, which may act), opened relative to its
directory's descriptor with O_NOFOLLOW, and looked at again through its own descriptor. A link
that takes the place of a directory meanwhile is refused by the kernel, not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path

from hostsync.errors import DiskError, Reason, Refused
from hostsync.model import Entry
from hostsync.release.flaw import KEEP_STILL, Flaw, Unreadable, subject
from hostsync.release.member import MEMBER_LIMIT, Member, check_path, check_size, directory

_PIECE = 256 * 1024
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def scan(path: Path) -> tuple[Entry, ...]:
    """All that is at `path`, sorted, with modes as they are and every content hashed.

    A file gives one entry with an empty path. Raises Refused (not-ours), naming it, for a link,
    device, FIFO or socket at `path` or beneath, or a name no release can have; DiskError when
    something cannot be read, a missing `path` included.
    """
    try:
        with _opened(str(path), None, "") as (fd, status):
            if not stat.S_ISDIR(status.st_mode):
                return (_entry(read_file(fd)),)
            with closing(walk(fd)) as members:
                return tuple(sorted(map(_entry, members), key=lambda entry: entry.path))
    except Unreadable as flaw:
        raise DiskError(f"{path}: {flaw.why}", remedy=flaw.remedy) from flaw
    except Flaw as flaw:
        remedy = "move it aside; only whole releases belong there"
        raise Refused(Reason.NOT_OURS, f"{path}: {flaw.why}", remedy=remedy) from flaw


def walk(fd: int, above: str = "") -> Generator[Member, None, None]:
    """The members beneath an open directory, depth first, names sorted, each before its content.

    Raises Flaw for anything but regular files and directories, and for names against the rules.
    """
    for name in _names(fd, above):
        path = f"{above}{name}"
        check_path(path)
        with _opened(name, fd, path) as (child, status):
            if stat.S_ISDIR(status.st_mode):
                yield directory(path, stat.S_IMODE(status.st_mode))
                yield from walk(child, f"{path}/")
            else:
                yield _file(path, child, status)


def read_file(fd: int) -> Member:
    """The open regular file `fd` as a release of one member, from its first byte."""
    return _file("", fd, os.fstat(fd))


def read_chunks(fd: int, size: int, path: str = "") -> Iterator[bytes]:
    """The `size` bytes of a file from its start, wherever `fd` stands.

    Raises Flaw when the file turns out shorter or longer: it is being written.
    """
    done = 0
    while True:
        try:
            chunk = os.pread(fd, _PIECE, done)
        except OSError as error:
            raise Unreadable(path, error) from error
        done += len(chunk)
        if done > size or (not chunk and done < size):
            raise Flaw(f"{subject(path)} changed its size while being read", remedy=KEEP_STILL)
        if not chunk:
            return
        yield chunk


def _file(path: str, fd: int, status: os.stat_result) -> Member:
    size, mode = status.st_size, stat.S_IMODE(status.st_mode)
    check_size(size, path)
    content = read_chunks(fd, size, path)
    return Member(path=path, is_directory=False, mode=mode, size=size, content=content)


def _entry(member: Member) -> Entry:
    total = sha256()
    for chunk in member.content:
        total.update(chunk)
    digest = "" if member.is_directory else total.hexdigest()
    path, mode, size = member.path, member.mode, member.size
    return Entry(path=path, is_directory=member.is_directory, mode=mode, size=size, sha256=digest)


def _names(fd: int, above: str) -> list[str]:
    """Names in a directory, listed only up to the limit: a hostile one may have millions."""
    path = above.removesuffix("/")
    try:
        with os.scandir(fd) as found:
            names = sorted(entry.name for entry in islice(found, MEMBER_LIMIT + 1))
    except OSError as error:
        raise Unreadable(path, error) from error
    if len(names) > MEMBER_LIMIT:
        raise Flaw(f"{subject(path)} exceeds the {MEMBER_LIMIT} members of a release")
    return names


@contextmanager
def _opened(name: str, at: int | None, path: str) -> Iterator[tuple[int, os.stat_result]]:
    try:
        _check_type(os.stat(name, dir_fd=at, follow_symlinks=False), path)
        fd = _open_quietly(name, at)
    except OSError as error:
        raise Unreadable(path, error) from error
    try:
        status = os.fstat(fd)
        _check_type(status, path)
        yield fd, status
    finally:
        os.close(fd)


def _open_quietly(name: str, at: int | None) -> int:
    """Reading is to leave no trace either: no time of access, which costs the disk a write.

    Only root and the owner may ask for that (open(2), O_NOATIME).
    """
    try:
        return os.open(name, _OPEN | os.O_NOATIME, dir_fd=at)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=at)


def _check_type(status: os.stat_result, path: str) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "a device, FIFO or socket"
        raise Flaw(f"{subject(path)} is {what}; only regular files and directories are taken")
