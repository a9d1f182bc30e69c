"""The host's credential in each machine: bound where guest root is the host's equal, else not.

A machine that cannot have the bind gets a copy only if the configuration says so. Either way it
is at one path, where the plugin looks; a machine that has neither finds there why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec

from hostsync import credential, lock
from hostsync.config import Config
from hostsync.credential import Files
from hostsync.errors import HostsyncError, MachineError
from hostsync.layout import CREDENTIAL_INSIDE
from hostsync.ports import Fs, Machines, Mirror, Seen, View, Worker

_COPY_MODE = 0o600

Contents = Mapping[str, tuple[bytes, int]]
"""Names, contents and permission bits of files, of which nothing may be logged."""


class Way(StrEnum):
    """How a machine has the host's credential."""

    BIND = "bind"
    COPY = "copy"
    NONE = "none"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What is shared: the directory of the host, and whether copies of it are allowed."""

    source: Path
    copies: bool
    at: Path = CREDENTIAL_INSIDE

    @classmethod
    def of(cls, config: Config) -> Self:
        """What the configuration says."""
        return cls(source=config.credential_root, copies=config.machines.credential_copy)


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one machine: how it has the credential, and what is wrong with that.

    `why` says, where there is neither bind nor copy, why not; `problem` is empty when in step.
    """

    way: Way
    why: str = ""
    problem: str = ""

    @property
    def words(self) -> str:
        """For people: `by bind`, `by copy` or `none: why`; empty when nothing is shared."""
        if self.way is not Way.NONE:
            return f"by {self.way}"
        return f"none: {self.why}" if self.why else ""


def refresh(fs: Fs, config: Config) -> bool:
    """Bring what is shared up to date with the operator's file; whether that was news.

    It does not wait for an order in flight: a lock of its own keeps two from doing it at once.
    Raises ConfigError, DiskError; what machines have stays then.
    """
    with lock.held(config.run_root / "sharing", "sharing the credential", wait=True):
        return credential.lay_out(fs, config.credential_file, config.credential_root)


def share(machines: Machines, share: Share, worker: Worker) -> Shared:
    """Have a machine see what the host shares, and say how it does; repeatable.

    A bind is never stacked on one that is there. Where nothing is shared (any more), copies go,
    and a bind that is left is of an empty directory. Raises MachineError, DiskError.
    """
    files = credential.laid_out(share.source)
    if files is None:
        return Shared(way=Way.NONE)
    refused = _bind(machines, share, worker) if files and worker.bindable else ""
    if worker.rootfs is not None:
        why = _why_not(_seen(machines, share, worker, files), worker, files, refused)
        converge_rootfs(machines, share, worker.rootfs, contents(share, files, why))
    return look(machines, share, worker, refused=refused)


def look(machines: Machines, share: Share, worker: Worker, *, refused: str = "") -> Shared:
    """Say how a machine has the credential, changing nothing; never raises.

    `refused` is why it could not be bound just now.
    """
    try:
        files = credential.laid_out(share.source)
        if files is None:
            return Shared(way=Way.NONE)
        seen = _seen(machines, share, worker, files)
        why = _why_not(seen, worker, files, refused)
        wanted = contents(share, files, why)
        tidy = worker.rootfs is None or _agrees(machines, share, worker.rootfs, wanted)
    except HostsyncError as error:
        return Shared(way=Way.NONE, why=str(error), problem=str(error))
    problem = "" if tidy else f"{share.at} in the rootfs differs from what it should hold"
    if seen is not None and seen.view is View.BIND:
        return Shared(way=Way.BIND, problem=_told(worker, _misbound(seen, worker) or problem))
    if credential.FILE_NAME in wanted and worker.rootfs is not None:
        return Shared(way=Way.COPY, problem=_told(worker, problem))
    missing = f"it is not there: {why}" if why and worker.bindable else ""
    return Shared(way=Way.NONE, why=why, problem=_told(worker, missing or problem))


def prepare_rootfs(machines: Machines, share: Share, rootfs: Path, why: str) -> None:
    """Before a machine boots: what is not going to be bound is copied, if that is allowed.

    `why` says why not; empty when it is going to be. Nothing to do as long as nothing was ever
    shared. Raises MachineError, DiskError.
    """
    files = credential.laid_out(share.source)
    if files is not None:
        converge_rootfs(machines, share, rootfs, contents(share, files, why))


def contents(share: Share, files: Files, why: str) -> Contents:
    """What a rootfs should hold beneath the bind, with modes: nothing, where there is no `why`.

    Else the copy if that is allowed, and if not the reason.
    """
    if not files or not why:
        return {}
    if share.copies:
        return {name: (data, _COPY_MODE) for name, data in files.items()}
    return {credential.REASON_NAME: (f"{why}\n".encode(), 0o644)}


def converge_rootfs(machines: Machines, share: Share, rootfs: Path, wanted: Contents) -> None:
    """Make a rootfs hold exactly that at the credential's place; raises MachineError.

    It works on a stopped machine as well. What a file names is there before the file.
    """
    with machines.mirror(rootfs, share.at, create=True) as mirror:
        mirror.sweep()
        there = mirror.names()
        for name in sorted(wanted, key=lambda name: (name == credential.FILE_NAME, name)):
            if not _holds(mirror, there, name, *wanted[name]):
                if there.get(name) == "directory":
                    mirror.remove(name)
                mirror.put_file(name, *wanted[name], as_root_inside=True)
        for name in sorted(set(there) - set(wanted)):
            mirror.remove(name)


def _seen(machines: Machines, share: Share, worker: Worker, files: Files) -> Seen | None:
    return machines.see(worker, share.source, share.at) if files else None


def _why_not(seen: Seen | None, worker: Worker, files: Files, refused: str) -> str:
    """Why there is no bind; empty when there is one, or nothing to be bound."""
    if not files or (seen is not None and seen.view is View.BIND):
        return ""
    return refused or worker.why_not or "the bind is missing"


def _bind(machines: Machines, share: Share, worker: Worker) -> str:
    """Bind unless it is bound already; why it could not be, empty when it is."""
    if machines.see(worker, share.source, share.at).view is View.BIND:
        return ""
    try:
        if worker.rootfs is not None:
            # machined would make the mount point with a mode of its own.
            with machines.mirror(worker.rootfs, share.at, create=True):
                pass
        machines.bind(worker, share.source, share.at)
    except MachineError as error:
        return str(error)
    return ""


def _misbound(seen: Seen, worker: Worker) -> str:
    if not worker.bindable:
        return f"it is bound although {worker.why_not}; restart the machine"
    if not seen.read_only:
        return "it is bound writable; restart the machine"
    if seen.depth > 1:
        return f"it is bound {seen.depth} times over; restart the machine"
    return ""


def _told(worker: Worker, problem: str) -> str:
    return f"the credential in machine {worker.name}: {problem}" if problem else ""


def _agrees(machines: Machines, share: Share, rootfs: Path, wanted: Contents) -> bool:
    try:
        with machines.mirror(rootfs, share.at, create=False) as mirror:
            there = mirror.names()
            return set(there) == set(wanted) and all(
                _holds(mirror, there, name, data, mode) for name, (data, mode) in wanted.items()
            )
    except MachineError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return not wanted
        raise


def _holds(mirror: Mirror, there: dict[str, str], name: str, data: bytes, mode: int) -> bool:
    if there.get(name) != "file":
        return False
    with suppress(MachineError):
        (entry,) = mirror.entries(name)
        return entry.mode == mode and entry.sha256 == sha256(data).hexdigest()
    return False
