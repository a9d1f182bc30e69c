"""The one module that mutates disk: a handful of durable primitives.

Facts it rests on: rename(2) is atomic within a filesystem, but neither it nor the data of the
file is on disk before an fsync of the file and of its directory; ext4 and xfs may otherwise
show an empty file after a power loss. `syncfs` flushes a whole filesystem at once, which for
a tree of thousands of small files is far cheaper than an fsync of each. Left alone, the kernel
begins to write after seconds; `sync_file_range` has it begin at once, and makes nothing durable.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from ctypes import c_int64
from pathlib import Path

from hostsync.errors import DiskError
from hostsync.layout import TEMPORARY_PREFIX
from hostsync.ports import Draft, Scratch

_AT_CWD, _RENAME_NOREPLACE, _RENAME_EXCHANGE = -100, 1, 2
_SYNC_RANGE_WRITE, _BEGIN_AT = 2, 8 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Disk:
    """`ports.Fs` on the real disk."""

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        """See `ports.Fs.make_directory`."""
        with _told(path, "create the directory"):
            missing = [p for p in (path, *path.parents) if not os.path.lexists(p)]
            for directory in reversed(missing):
                _make_directory(directory, mode if directory == path else 0o755)
            if not path.is_dir() or path.is_symlink():
                raise NotADirectoryError(errno.ENOTDIR, "something else stands there")

    def write(self, path: Path, data: bytes | Iterable[bytes], mode: int) -> None:
        """See `ports.Fs.write`."""
        chunks = (data,) if isinstance(data, bytes) else data
        temporary = _temporary(path)
        with _told(path, "write"), _removed_on_failure(temporary):
            with open(os.open(temporary, _NEW_FILE, 0o600), "wb", buffering=0) as file:
                for chunk in chunks:
                    _write_all(file.fileno(), chunk)
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            temporary.rename(path)
            _fsync(path.parent)

    def link(self, path: Path, target: str) -> None:
        """See `ports.Fs.link`."""
        temporary = _temporary(path)
        with _told(path, "link"), _removed_on_failure(temporary):
            temporary.symlink_to(target)
            temporary.rename(path)
            _fsync(path.parent)

    def move(self, old: Path, new: Path) -> None:
        """See `ports.Fs.move`."""
        with _told(new, f"rename {old.name} to"):
            _rename(old, new, _RENAME_NOREPLACE)

    def exchange(self, one: Path, other: Path) -> None:
        """See `ports.Fs.exchange`."""
        with _told(other, f"exchange {one.name} and"):
            _rename(one, other, _RENAME_EXCHANGE)

    def remove(self, path: Path) -> None:
        """See `ports.Fs.remove`."""
        with _told(path, "remove"):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                return
            if stat.S_ISDIR(mode):
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            _fsync(path.parent)

    def flush(self, path: Path) -> None:
        """See `ports.Fs.flush`."""
        with _told(path, "flush"):
            with _closed(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    os.fsync(fd)
                elif _libc.syncfs(fd) != 0:
                    raise OSError(ctypes.get_errno(), "syncfs failed")
            _fsync(path.parent)

    def sweep(self, directory: Path, prefix: str) -> tuple[str, ...]:
        """See `ports.Fs.sweep`."""
        with _told(directory, "list"):
            names = sorted(n for n in os.listdir(directory) if n.startswith(prefix))
        for name in names:
            self.remove(directory / name)
        return tuple(names)

    @contextmanager
    def draft(self, path: Path) -> Iterator[Draft]:
        """See `ports.Fs.draft`."""
        with _told(path.parent, "open"):
            above = os.open(path.parent, _DIRECTORY)
        with closing(_Draft(path, above)) as draft:
            yield draft

    @contextmanager
    def scratch(self, directory: Path) -> Iterator[Scratch]:
        """See `ports.Fs.scratch`."""
        with _told(directory, "write a temporary file in"):
            fd = _open_unnamed(directory)
        try:
            yield _Scratch(fd, directory)
        finally:
            os.close(fd)


class _Draft:
    """`ports.Draft` by directory descriptors, the last one kept open: members come sorted."""

    def __init__(self, top: Path, above: int) -> None:
        self._top = top
        self._above = above
        self._directory = ""
        self._fd = os.dup(above)

    def make_directory(self, path: str) -> None:
        with _told(self._top / path, "create the directory"):
            name = self._enter(path)
            os.mkdir(name, 0o755, dir_fd=self._fd)
            with _closed(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd)) as fd:
                _set_mode(fd, 0o755)

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        with _told(self._top / path, "write"):
            name = self._enter(path)
            with _closed(os.open(name, _NEW_FILE, mode, dir_fd=self._fd)) as fd:
                _write_on(fd, content)
                _set_mode(fd, mode)

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._above)

    def _enter(self, path: str) -> str:
        """The name of `path` in its directory, which is open afterwards; follows no link."""
        directory, _, name = f"{self._top.name}/{path}".rstrip("/").rpartition("/")
        if directory != self._directory:
            fd = os.dup(self._above)
            try:
                for part in filter(None, directory.split("/")):
                    below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                    os.close(fd)
                    fd = below
            except BaseException:
                os.close(fd)
                raise
            os.close(self._fd)
            self._fd, self._directory = fd, directory
        return name


class _Scratch:
    """`ports.Scratch` on an open descriptor."""

    def __init__(self, fd: int, directory: Path) -> None:
        self.fd = fd
        self._directory = directory

    def append(self, data: bytes) -> None:
        with _told(self._directory, "write a temporary file in"):
            _write_all(self.fd, data)

    def restart(self) -> None:
        with _told(self._directory, "truncate a temporary file in"):
            os.ftruncate(self.fd, 0)
            os.lseek(self.fd, 0, os.SEEK_SET)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY_PREFIX}{os.urandom(6).hex()}")


def _open_unnamed(directory: Path) -> int:
    """A file that never had a name, or, where the filesystem cannot do that, lost it at once."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(directory, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR}:
            raise
    # A kill between these two leaves an empty file under the prefix that is swept.
    temporary = _temporary(directory / "unnamed")
    fd = os.open(temporary, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        temporary.unlink()
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_directory(path: Path, mode: int) -> None:
    """Made under a temporary name: a kill in between must not leave one with another mode."""
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        temporary.chmod(mode)
        with suppress(FileExistsError):
            _renameat2(temporary, path, _RENAME_NOREPLACE)
    finally:
        with suppress(FileNotFoundError):
            temporary.rmdir()
    _fsync(path.parent)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _set_mode(fd: int, mode: int) -> None:
    """Exactly `mode`, whatever the umask took; the journal is spared what changes nothing."""
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        os.fchmod(fd, mode)


def _write_on(fd: int, content: Iterable[bytes]) -> None:
    """Write it all; the disk begins with what is there while more is still made."""
    begun = done = 0
    for chunk in content:
        _write_all(fd, chunk)
        done += len(chunk)
        if done - begun >= _BEGIN_AT:
            _libc.sync_file_range(fd, c_int64(begun), c_int64(done - begun), _SYNC_RANGE_WRITE)
            begun = done


def _fsync(path: Path) -> None:
    with _closed(os.open(path, _DIRECTORY)) as fd:
        os.fsync(fd)


@contextmanager
def _closed(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _rename(old: Path, new: Path, how: int) -> None:
    _renameat2(old, new, how)
    for parent in {new.parent, old.parent}:
        _fsync(parent)


def _renameat2(old: Path, new: Path, how: int) -> None:
    if _libc.renameat2(_AT_CWD, bytes(old), _AT_CWD, bytes(new), how) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextmanager
def _told(path: Path, act: str) -> Iterator[None]:
    """Map an OSError to a DiskError that names the act, the path and a remedy."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise DiskError(f"cannot {act} {path}: {cause}", remedy=remedy) from error


_REMEDIES = {
    errno.ENOSPC: "free space on that filesystem and order again",
    errno.EDQUOT: "raise the quota of that filesystem and order again",
    errno.EROFS: "remount it read-write, or configure a slot_root elsewhere such as /opt/hostsync",
    errno.EISDIR: "an atomic switch needs a file or link there; move the directory aside",
    errno.EEXIST: "move what is there aside",
    errno.ENOTDIR: "move what is there aside",
    errno.EBUSY: "unmount what is mounted there",
    errno.EXDEV: "keep it on the filesystem of the other slots",
    errno.ELOOP: "move the link aside",
    errno.EACCES: "run as root",
    errno.EPERM: "run as root, and check for an immutable attribute (lsattr)",
}


@contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
