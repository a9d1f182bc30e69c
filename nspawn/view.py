"""What a machine sees at a path, asked from the host.

Every path is resolved by the kernel within the root of the machine's leader, so a link that the
guest planted leads where it leads for the guest and never into the host. What stands there is
told by device and inode, not by text: field 4 of mountinfo is a path within a filesystem, not
one of the host.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Literal

import msgspec

from nspawn import _mounts, _regular
from nspawn._linux import Resolve, openat2
from nspawn._refusal import NOT_PLAIN, unsafe
from nspawn.errors import MachineUnreachable, NoSuchMachine, UnsafePath, ViewUnstable
from nspawn.machine import Machine, start_time

_IN_ROOT = Resolve.IN_ROOT | Resolve.NO_MAGICLINKS
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_LOOKS = 3


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine sees at a path.

    `kind` is "bind" when it is the source itself, by device and inode; "underlying" when it is
    anything else; "absent" when nothing is there. `read_only` is of the mount it lies on.
    `depth` counts the mounts stacked at that very path, 0 when it is no mount point.
    """

    kind: Literal["bind", "underlying", "absent"]
    read_only: bool
    depth: int


def look(machine: Machine, path: Path, source: Path) -> View:
    """What `machine` sees at `path`, compared with the host's `source`.

    Raises NoSuchMachine when the machine is gone, MachineUnreachable without the privilege to
    look, ViewUnstable when mounts come and go during three looks.
    """
    with _entered(machine) as inside:
        for _ in range(_LOOKS):
            try:
                fd = inside.open(str(path))
            except OSError as e:
                if e.errno in _NOT_THERE:
                    return View(kind="absent", read_only=False, depth=0)
                raise
            try:
                view = _view(inside, fd, source)
            finally:
                os.close(fd)
            if view:
                return view
    raise ViewUnstable(f"the mounts of machine {machine.name!r} keep changing", remedy="try again")


def read(machine: Machine, path: Path, limit: int) -> bytes:
    """The content of a regular file as `machine` sees it, following links in its root.

    Never blocks on a FIFO and opens no device. Raises FileNotFoundError, UnsafePath when it
    is anything but a regular file, TooLarge above `limit` bytes, NoSuchMachine.
    """
    what = _named(machine, path)
    with (
        _entered(machine) as inside,
        _regular.opened(inside.root, str(path), _IN_ROOT, what) as fd,
    ):
        return _regular.read(fd, limit, what)


def readlink(machine: Machine, path: Path) -> str:
    """The target of the link at `path` as `machine` sees it; only its parents are followed.

    Raises FileNotFoundError, UnsafePath when it is no link, NoSuchMachine.
    """
    with _itself(machine, path) as fd:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            raise unsafe(_named(machine, path), "it is not a link")
        return os.readlink("", dir_fd=fd)


def mode(machine: Machine, path: Path) -> int | None:
    """The st_mode of what `machine` has at `path`, a link not followed; None when absent."""
    try:
        with _itself(machine, path) as fd:
            return os.fstat(fd).st_mode
    except (FileNotFoundError, UnsafePath):
        return None


@contextmanager
def _itself(machine: Machine, path: Path) -> Iterator[int]:
    with _entered(machine) as inside:
        try:
            fd = inside.open(str(path), os.O_NOFOLLOW)
        except OSError as e:
            if e.errno in NOT_PLAIN:
                raise unsafe(_named(machine, path), "a parent is no directory") from e
            raise
        try:
            yield fd
        finally:
            os.close(fd)


def _named(machine: Machine, path: Path) -> PurePath:
    return PurePath(f"{machine.name}:{path}")


class _Inside(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptors of the leader's /proc directory and of its root.

    A descriptor of /proc/PID keeps meaning that process, so once its start time agrees
    nothing read through it can belong to a successor with the same number.
    """

    machine: Machine
    proc: int
    root: int

    def open(self, path: str, flags: int = 0) -> int:
        return openat2(self.root, path, os.O_PATH | flags, resolve=_IN_ROOT)

    def mounts(self) -> dict[int, _mounts.Mount]:
        with _while_running(self.machine):
            return _mounts.parse(_content(self.proc, "mountinfo"))


@contextmanager
def _entered(machine: Machine) -> Iterator[_Inside]:
    with _while_running(machine):
        proc = os.open(f"/proc/{machine.leader}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _while_running(machine):
            if start_time(_content(proc, "stat")) != machine.leader_start:
                raise NoSuchMachine(machine.name, "has ended")
            root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            yield _Inside(machine=machine, proc=proc, root=root)
        finally:
            os.close(root)
    finally:
        os.close(proc)


@contextmanager
def _while_running(machine: Machine) -> Iterator[None]:
    try:
        yield
    except PermissionError as e:
        raise MachineUnreachable(
            f"may not look into machine {machine.name!r}", remedy="run as root with CAP_SYS_PTRACE"
        ) from e
    except OSError as e:
        # A process that ended answers ENOENT, ESRCH, or EINVAL while it is a zombie.
        if e.errno in {errno.ENOENT, errno.ESRCH, errno.EINVAL}:
            raise NoSuchMachine(machine.name, "has ended") from e
        raise


def _view(inside: _Inside, fd: int, source: Path) -> View | None:
    mounts = inside.mounts()
    mount = mounts.get(_mount_id(fd))
    if mount is None:
        return None
    return View(
        kind="bind" if _is(fd, source) else "underlying",
        read_only=mount.read_only,
        depth=_mounts.depth(mounts, mount) if _is_root_of(inside, fd, mount) else 0,
    )


def _is(fd: int, source: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), source.stat())
    except FileNotFoundError:
        return False


def _is_root_of(inside: _Inside, fd: int, mount: _mounts.Mount) -> bool:
    """Whether `fd` is what one gets at the mount point of the mount that it lies on."""
    try:
        point = inside.open(mount.point)
    except OSError:
        return False
    try:
        return _mount_id(point) == mount.id and os.path.samestat(os.fstat(point), os.fstat(fd))
    finally:
        os.close(point)


def _mount_id(fd: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{fd}").read_bytes().split(b"\n")
    return next(int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:"))


def _content(proc: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    with open(fd, "rb") as file:
        return file.read()
