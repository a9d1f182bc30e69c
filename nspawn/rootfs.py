"""Writing durably beneath a rootfs whose owner may plant links, devices and mount points.

Everything goes through directory descriptors: each component is opened beneath the one before
and no link is ever followed, so the worst a guest can reach by renaming things meanwhile is
another directory of its own. What is new is written under a temporary name, flushed, renamed
into place, and the directory flushed: after a power loss a name holds the old or the new.

The directory itself may be a mount point inside the machine. It is never renamed or removed,
for that would move or drop the mount in there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final, Literal, Self

from nspawn import _copying, _regular, _scanning
from nspawn._copying import PLAIN
from nspawn._linux import openat2, rename_noreplace, syncfs
from nspawn._refusal import component, told, unsafe
from nspawn._removal import Removal
from nspawn._scanning import ScannedFile
from nspawn.errors import NspawnError, Occupied, TooLarge

__all__ = ["Directory", "EntryKind", "ScannedFile"]

EntryKind = Literal["file", "directory", "link", "other"]

TEMP_PREFIX: Final = ".nspawn-tmp-"
"""How temporary names begin unless the caller says otherwise."""

SCAN_BYTES: Final = 1 << 30
SCAN_ENTRIES: Final = 100_000
"""What a scan reads at most unless the caller says otherwise."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class Directory:
    """One directory beneath a rootfs, held open; a context manager.

    Names are single components. Besides what each verb says, all raise UnsafePath for a name
    that is none, NoSpace when the filesystem is full and RootfsError when it refuses.
    """

    def __init__(self, fd: int, rootfs: Path, inner: PurePath, *, temp_prefix: str) -> None:
        self._fd = fd
        self._rootfs = rootfs
        self._inner = inner
        self._whole = rootfs / inner
        self._temp_prefix = temp_prefix

    @classmethod
    def open(
        cls, rootfs: Path, inner: Path, *, create: bool, temp_prefix: str = TEMP_PREFIX
    ) -> Self:
        """Open `inner` (as the machine names it) beneath `rootfs` (trusted, of the host).

        With `create`, missing directories are made durably, mode 0755, owned by the caller.
        Raises FileNotFoundError when missing without `create`, UnsafePath when any component
        is a link or not a directory.
        """
        parts = inner.relative_to(inner.anchor).parts
        with told(rootfs, PurePath()):
            fd = os.open(rootfs, _DIRECTORY | os.O_CLOEXEC)
        for depth, part in enumerate(parts, start=1):
            parent = fd
            try:
                with told(rootfs, PurePath(*parts[:depth])):
                    fd = _entered(parent, component(part, inner), create=create)
            finally:
                os.close(parent)
        return cls(fd, rootfs, PurePath(*parts), temp_prefix=temp_prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def entries(self, *, limit: int = SCAN_ENTRIES) -> dict[str, EntryKind]:
        """What is there, by name, links not followed; raises TooLarge beyond `limit`."""
        found: dict[str, EntryKind] = {}
        with self._acting(), os.scandir(self._fd) as entries:
            for entry in entries:
                if len(found) == limit:
                    raise TooLarge(
                        f"{self._path()} has more than {limit} entries", remedy="clear it"
                    )
                found[entry.name] = _kind(entry)
        return found

    def put_tree(self, name: str, source: Path) -> None:
        """Copy a regular file or a tree of files and directories to the new `name`.

        It appears whole and flushed, or not at all. Permission bits are kept (setuid, setgid
        and sticky dropped); the caller owns it all. Raises Occupied when `name` exists,
        UnsafePath when the source holds anything else, FileNotFoundError when it is missing.
        """
        with self._acting(name):
            if self._mode(name) is not None:
                raise self._occupied(name)
            with self._temporary() as temporary:
                _copying.copy(source, self._fd, temporary)
                # One flush of the filesystem is far cheaper than one of each of many files.
                syncfs(self._fd)
                self._moved(temporary, name)

    def put_file(self, name: str, data: bytes, mode: int, *, as_root_inside: bool = False) -> None:
        """Make `name` a regular file with this content and permission bits, atomically.

        It belongs to the caller, or to whom the rootfs belongs: the root of a machine whose
        users are shifted. A file, link or device of that name is replaced; raises UnsafePath
        for a directory.
        """
        with self._acting(name), self._temporary() as temporary:
            fd = _copying.new_file(self._fd, temporary)
            try:
                _copying.write_all(fd, data)
                _copying.own(fd, mode)
                if as_root_inside:
                    top = self._rootfs.stat()
                    os.fchown(fd, top.st_uid, top.st_gid)
                os.fsync(fd)
            finally:
                os.close(fd)
            self._replaced(temporary, name)

    def put_link(self, name: str, target: str, *, replace_file: bool = False) -> None:
        """Make `name` a link to `target`, atomically; only a link is replaced.

        With `replace_file` a regular file is replaced too. Raises UnsafePath for anything else.
        """
        with self._acting(name):
            mode = self._mode(name)
            replaceable = (
                mode is None or stat.S_ISLNK(mode) or (replace_file and stat.S_ISREG(mode))
            )
            if not replaceable:
                raise unsafe(self._path(name), "only a link may be replaced there")
            with self._temporary() as temporary:
                os.symlink(target, temporary, dir_fd=self._fd)
                self._replaced(temporary, name)

    def rename(self, old: str, new: str) -> None:
        """Rename durably; raises FileNotFoundError without `old`, Occupied when `new` exists."""
        with self._acting(old):
            self._moved(component(old, self._path()), component(new, self._path()))

    def remove(self, name: str) -> None:
        """Remove `name` and all beneath it, following nothing; nothing there is fine.

        Raises UnsafePath at a mount point. After a crash the rest bears a temporary name.
        """
        with self._acting(name):
            Removal(self._fd, self._path(), self._temp_name).remove(name)
            os.fsync(self._fd)

    def read_file(self, path: str, limit: int) -> bytes | None:
        """The content of a file here or one directory down ("blue/RELEASE"), None if absent.

        Raises UnsafePath when it or its directory is anything else, TooLarge above `limit`.
        """
        what = self._path(path)
        with self._acting(*path.split("/", 1)):
            try:
                with _regular.opened(self._fd, path, PLAIN, what) as fd:
                    return _regular.read(fd, limit, what)
            except FileNotFoundError:
                return None

    def read_link(self, name: str) -> str | None:
        """The target of the link `name`; None if absent, UnsafePath if it is no link."""
        with self._acting(name):
            mode = self._mode(name)
            if mode is None:
                return None
            if not stat.S_ISLNK(mode):
                raise unsafe(self._path(name), "it is not a link")
            return os.readlink(name, dir_fd=self._fd)

    def scan(
        self, name: str, *, limit_bytes: int = SCAN_BYTES, limit_entries: int = SCAN_ENTRIES
    ) -> Iterator[ScannedFile]:
        """Every file and directory beneath `name`, or the file `name` itself, with digests.

        Sorted by path components, a directory before what it holds; the top is not listed.
        Raises FileNotFoundError, TooLarge beyond the limits, and UnsafePath for links, devices,
        mount points, unprintable names, deep trees and files that change meanwhile.
        """
        budget = _scanning.Budget(size=limit_bytes, entries=limit_entries)
        with self._acting(name):
            yield from _scanning.scan(self._fd, name, self._path(name), budget)

    def sweep(self, prefix: str) -> tuple[str, ...]:
        """Remove everything whose name begins with `prefix`; returns the names, sorted."""
        component(prefix, self._path())
        names = tuple(sorted(n for n in self.entries() if n.startswith(prefix)))
        for name in names:
            self.remove(name)
        return names

    def free_bytes(self) -> int:
        """How many bytes an unprivileged writer could still write to this filesystem."""
        with self._acting():
            room = os.fstatvfs(self._fd)
        return room.f_bavail * room.f_frsize

    @property
    def read_only(self) -> bool:
        """Whether the mount that the host reaches it by is read-only."""
        with self._acting():
            return bool(os.fstatvfs(self._fd).f_flag & os.ST_RDONLY)

    def _path(self, name: str = "") -> PurePath:
        return self._whole / name if name else self._whole

    @contextmanager
    def _acting(self, *names: str) -> Iterator[None]:
        for name in names:
            component(name, self._path())
        with told(self._rootfs, self._inner.joinpath(*names)):
            yield

    def _mode(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _temp_name(self) -> str:
        return f"{self._temp_prefix}{os.urandom(8).hex()}"

    @contextmanager
    def _temporary(self) -> Iterator[str]:
        """A name for something new, which is gone again when that does not get its place."""
        name = self._temp_name()
        try:
            yield name
        except BaseException:
            with suppress(OSError, NspawnError):
                Removal(self._fd, self._path(), self._temp_name).remove(name)
            raise

    def _replaced(self, temporary: str, name: str) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except IsADirectoryError as e:
            raise unsafe(self._path(name), "it is a directory") from e
        os.fsync(self._fd)

    def _moved(self, old: str, new: str) -> None:
        try:
            rename_noreplace(self._fd, old, self._fd, new)
        except FileExistsError as e:
            raise self._occupied(new) from e
        os.fsync(self._fd)

    def _occupied(self, name: str) -> Occupied:
        return Occupied(f"{self._path(name)} exists already", remedy="remove it first")


def _entered(parent: int, name: str, *, create: bool) -> int:
    try:
        return openat2(parent, name, _DIRECTORY, resolve=PLAIN)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # Another may have made it meanwhile.
        return _created(parent, name)
    return openat2(parent, name, _DIRECTORY, resolve=PLAIN)


def _created(parent: int, name: str) -> int:
    fd = _copying.new_directory(parent, name)
    try:
        _copying.own(fd, 0o755)
        os.fsync(parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
