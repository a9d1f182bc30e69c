"""The worker machines of this host: `ports.Machines` over the nspawn library.

Decides which machines are workers and how each may see the slot root: a bind only where guest
root is the host's equal anyway, for a read-only bind stops accidents, not guest root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from hostsync import workers
from hostsync.errors import MachineError
from hostsync.layout import CREDENTIAL_INSIDE
from hostsync.model import Entry
from hostsync.ports import Completed, Mirror, Seen, Space, View, Worker
from hostsync.redaction import plain, redact
from nspawn import rootfs as nspawn_rootfs
from nspawn import run as nspawn_run
from nspawn import settings as nspawn_settings
from nspawn import view as nspawn_view
from nspawn.errors import CommandTimeout, NspawnError, UnsafePath
from nspawn.machine import Machine
from nspawn.machined import EventKind, Machined

OWNER = "hostsync"
"""Whose block it is in a machine's .nspawn file."""


class NspawnMachines:
    """`ports.Machines` on machined, for the workers that the configuration names."""

    def __init__(self, policy: workers.Machines, machined: Machined) -> None:
        self._policy = policy
        self._machined = machined
        self._known: dict[str, Machine] = {}

    @classmethod
    def connected(cls, policy: workers.Machines) -> Self:
        """The same on a connection that collects machine starts from now on.

        Raises MachineError when machined cannot be reached.
        """
        with _told():
            return cls(policy, Machined.connect())

    def running(self) -> tuple[Worker, ...]:
        """See `ports.Machines.running`."""
        with _told():
            machines = [m for m in self._machined.list() if self._policy.is_worker(m.name)]
        self._known = {machine.name: machine for machine in machines}
        return tuple(self._worker(machine) for machine in machines)

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        """See `ports.Machines.see`."""
        with _told():
            seen = nspawn_view.look(self._machine(worker), at or root, root)
        views = {"bind": View.BIND, "underlying": View.MIRROR, "absent": View.NONE}
        return Seen(view=views[seen.kind], read_only=seen.read_only, depth=seen.depth)

    def read_link(self, worker: Worker, path: Path) -> str | None:
        """See `ports.Machines.read_link`."""
        with _told():
            try:
                return nspawn_view.readlink(self._machine(worker), path)
            except (FileNotFoundError, NotADirectoryError, UnsafePath):
                return None

    def read_file(self, worker: Worker, path: Path, limit: int) -> bytes | None:
        """See `ports.Machines.read_file`."""
        with _told():
            try:
                return nspawn_view.read(self._machine(worker), path, limit)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def bind(self, worker: Worker, root: Path, at: Path | None = None) -> None:
        """See `ports.Machines.bind`."""
        with _told():
            self._machined.bind(worker.name, root, at or root)

    @contextmanager
    def mirror(self, rootfs: Path, directory: Path, *, create: bool) -> Iterator[Mirror]:
        """See `ports.Machines.mirror`."""
        with _told():
            opened = nspawn_rootfs.Directory.open(rootfs, directory, create=create)
        with opened:
            yield _Directory(opened)

    def space(self, rootfs: Path) -> Space:
        """See `ports.Machines.space`."""
        with _told(), nspawn_rootfs.Directory.open(rootfs, Path("/"), create=False) as top:
            if top.read_only:
                raise MachineError(f"the rootfs {rootfs} is mounted read-only")
            device = rootfs.stat().st_dev
            return Space(device=device, free=top.free_bytes(), read_only=False, noexec=False)

    def run(self, worker: Worker, argv: tuple[str, ...], timeout: float) -> Completed:
        """See `ports.Machines.run`."""
        with _told():
            try:
                done = nspawn_run.run(worker.name, argv, timeout=timeout)
            except CommandTimeout:
                return Completed(status=None, stdout="", stderr="")
        return Completed(
            status=done.returncode,
            stdout=plain(redact(done.stdout.decode(errors="replace"))),
            stderr=plain(redact(done.stderr.decode(errors="replace"))),
        )

    def wait_for_start(self, seconds: float) -> str | None:
        """The next worker that starts, None when none does within `seconds`."""
        with _told():
            event = self._machined.wait_event(seconds)
        if event is None or event.kind is not EventKind.NEW:
            return None
        return event.name if self._policy.is_worker(event.name) else None

    def bind_at_boot(
        self, name: str, roots: tuple[Path, ...], credential: Path | None = None
    ) -> bool:
        """Have the machine bind these directories at its next start; whether the last will be.

        The directory of credentials is bound only where the machine's settings say that its
        root is the host's equal; elsewhere a bind waits until the running machine was seen.
        """
        if name in self._policy.mirror_only:
            roots, credential = (), None
        with _told():
            if credential is not None and not nspawn_settings.says_no_user_namespace(name):
                credential = None
            inside = (
                nspawn_settings.Bind(source=credential, destination=CREDENTIAL_INSIDE)
                for credential in filter(None, (credential,))
            )
            nspawn_settings.apply(name, OWNER, (*roots, *inside))
        return credential is not None and credential.exists()

    def _machine(self, worker: Worker) -> Machine:
        if worker.name not in self._known:
            self._known[worker.name] = self._machined.get(worker.name)
        return self._known[worker.name]

    def _worker(self, machine: Machine) -> Worker:
        why_not = ""
        if machine.user_namespace:
            why_not = "it has a user namespace of its own"
        elif machine.name in self._policy.mirror_only:
            why_not = "the configuration says mirror only"
        return Worker(name=machine.name, rootfs=machine.root, bindable=not why_not, why_not=why_not)


class _Directory(msgspec.Struct, frozen=True):
    """`ports.Mirror` on a directory of the nspawn library: the same verbs, our errors."""

    inner: nspawn_rootfs.Directory

    def names(self) -> dict[str, str]:
        with _told():
            return {name: str(kind) for name, kind in self.inner.entries().items()}

    def put_tree(self, name: str, source: Path) -> None:
        with _told():
            self.inner.put_tree(name, source)

    def put_file(self, name: str, data: bytes, mode: int, *, as_root_inside: bool = False) -> None:
        with _told():
            self.inner.put_file(name, data, mode, as_root_inside=as_root_inside)

    def put_link(self, name: str, target: str, *, replace_file: bool = False) -> None:
        with _told():
            self.inner.put_link(name, target, replace_file=replace_file)

    def rename(self, old: str, new: str) -> None:
        with _told():
            self.inner.rename(old, new)

    def remove(self, name: str) -> None:
        with _told():
            self.inner.remove(name)

    def read_file(self, name: str, limit: int) -> bytes | None:
        with _told():
            return self.inner.read_file(name, limit)

    def read_link(self, name: str) -> str | None:
        with _told():
            return self.inner.read_link(name)

    def entries(self, name: str) -> tuple[Entry, ...]:
        with _told():
            return tuple(
                Entry(
                    path=found.path,
                    is_directory=found.kind == "directory",
                    mode=found.mode,
                    size=found.size,
                    sha256=found.sha256,
                )
                for found in self.inner.scan(name)
            )

    def sweep(self) -> None:
        with _told():
            self.inner.sweep(nspawn_rootfs.TEMP_PREFIX)


@contextmanager
def _told() -> Iterator[None]:
    """Map what the nspawn library raises to MachineError."""
    try:
        yield
    except NspawnError as error:
        raise MachineError(plain(str(error))) from error
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        said = plain(f"cannot reach into the machine:{where} {error.strerror}")
        raise MachineError(said) from error
