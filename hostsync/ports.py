"""The world as hostsync's core sees it: narrow interfaces that say how they behave.

The composition root (`wiring`) passes the real ones in; tests pass in ones that misbehave on
request. Foreign exceptions stop behind these doors: only errors of `hostsync.errors` come out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from hostsync.model import Entry


class Scratch(Protocol):
    """An open file without a name: it is gone with its descriptor, however the process ends."""

    @property
    def fd(self) -> int:
        """The descriptor, open for reading and writing."""

    def append(self, data: bytes) -> None:
        """Write at the end; raises DiskError."""

    def restart(self) -> None:
        """Forget all that was written; raises DiskError."""


class Draft(Protocol):
    """A file or a tree that takes shape at a path which nothing refers to yet.

    Its parts are put straight in place and not flushed one by one, so a kill leaves a part of it,
    to be removed as a whole. Paths are relative to the draft and plain; "" is the draft itself.
    Nothing is replaced and no link is followed. Both verbs raise DiskError.
    """

    def make_directory(self, path: str) -> None:
        """Make a directory of mode 0755 in one that was made before."""

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        """Write a new file of exactly `mode`, in a directory that was made before."""


class Fs(Protocol):
    """The only door through which the disk is changed. Every verb raises DiskError.

    A verb that returns has happened durably: it survives a power loss. A verb that is killed
    half-way leaves the old or the new state at its path, beside at most a temporary that
    `sweep` removes. The one exception is a `draft`, made durable by `flush`.
    """

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        """Create the directory (parents too) with exactly `mode`; nothing to do if it is there."""

    def write(self, path: Path, data: bytes | Iterable[bytes], mode: int) -> None:
        """Put a regular file at `path`, atomically replacing a file or link; never a directory."""

    def link(self, path: Path, target: str) -> None:
        """Put a symbolic link at `path`, atomically replacing a file or link; not a directory."""

    def move(self, old: Path, new: Path) -> None:
        """Rename within a filesystem; refuses to replace anything at `new`."""

    def exchange(self, one: Path, other: Path) -> None:
        """Have two things change places at once; both are there, before, after and in between."""

    def remove(self, path: Path) -> None:
        """Remove a file, a link, or a tree (never through links); idempotent."""

    def flush(self, path: Path) -> None:
        """Make the draft at `path` durable, all that is beneath it included."""

    def sweep(self, directory: Path, prefix: str) -> tuple[str, ...]:
        """Remove every entry of `directory` whose name starts with `prefix`; their names."""

    def draft(self, path: Path) -> AbstractContextManager[Draft]:
        """A new `Draft` at `path`, whose parent is there; after an error the caller removes it."""

    def scratch(self, directory: Path) -> AbstractContextManager[Scratch]:
        """A new empty `Scratch` on the filesystem of `directory`; closed, and gone, on leaving."""


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """A systemd unit at one instant, as its D-Bus properties say it.

    `main_pid` 0 means that nothing runs; `invocation` is empty before the first start;
    `restarts` counts automatic restarts since the last requested start.
    """

    load: str
    active: str
    sub: str
    main_pid: int
    invocation: str
    restarts: int
    result: str


class UnitVerb(StrEnum):
    """Requests that systemd answers with a job."""

    START = "StartUnit"
    STOP = "StopUnit"
    RESTART = "RestartUnit"


class Units(Protocol):
    """Systemd on this host. Every verb raises UnitsError when systemd cannot be asked."""

    def state(self, unit: str) -> UnitState:
        """The unit now; a unit that does not exist has load state `not-found`."""

    def queue(self, verb: UnitVerb, unit: str) -> str:
        """Queue a job, replacing one in the way, and return its name; it is not awaited."""

    def job_result(self, job: str) -> str | None:
        """How a queued job ended (`done`, `failed`, `timeout`, …), None while it runs."""

    def wait(self, seconds: float) -> None:
        """Return as soon as any unit changed or a job ended, at the latest after `seconds`."""

    def reset_failed(self, unit: str) -> None:
        """Forget failures and the start limit; a refusal is tolerated."""

    def kill(self, unit: str) -> None:
        """Send SIGKILL to every process of the unit; nothing to do when there is none."""

    def reload(self) -> None:
        """Read unit files anew."""

    def enable(self, units: tuple[str, ...]) -> None:
        """Have the units started at boot; idempotent."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended; `status` is None when it was killed at its deadline.

    Output is cut at the port's limit and decoded leniently: it is hostile text.
    """

    status: int | None
    stdout: str
    stderr: str


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A filesystem as far as staging cares; `free` in bytes, for root."""

    device: int
    free: int
    read_only: bool
    noexec: bool


class Probe(Protocol):
    """Looks at processes and filesystems, and runs a candidate to see what it answers."""

    def run(self, argv: tuple[str, ...], timeout: float) -> Completed:
        """Run a command in a process group of its own, stdin empty, environment clean.

        At the deadline the whole group is killed. Raises Failed when it cannot be started.
        """

    def executable(self, pid: int) -> tuple[int, int] | None:
        """(device, inode) of what the process runs, None when it is gone."""

    def executable_path(self, pid: int) -> Path | None:
        """Where the kernel says that file is, None when the process is gone."""

    def script(self, pid: int) -> Path | None:
        """The first argument of an interpreter's process, None when it is gone or has none."""

    def space(self, path: Path) -> Space:
        """The filesystem that holds `path` or its nearest existing parent."""

    def journal(self, unit: str, lines: int, *, after: str, but: str) -> tuple[str, ...]:
        """The last lines that a unit's runs logged in this boot; empty when there is no journal.

        Only runs later than the invocation `after` count, and the invocation `but` does not:
        a crash loop has many runs, and the last of them may have said nothing yet.
        """


class Clock(Protocol):
    """Time as data. Monotonic time is comparable only within one boot id."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary instant of this boot; never jumps."""

    def wall(self) -> float:
        """Seconds since the epoch; may jump, only for people and for stamps."""

    def boot_id(self) -> str:
        """Changes with every boot of the host."""

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A running machine to keep in step; `why_not` says why it is not `bindable`, if it is not."""

    name: str
    rootfs: Path | None
    bindable: bool
    why_not: str = ""


class View(StrEnum):
    """The way a machine sees a directory of the host: itself, what lies beneath, nothing."""

    BIND = "bind"
    MIRROR = "mirror"
    NONE = "none"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine sees a directory of the host, looked at from inside.

    `depth` counts the mounts stacked at that point; more than one is a fault.
    """

    view: View
    read_only: bool = False
    depth: int = 0


class Mirror(Protocol):
    """A directory within a machine's rootfs, held by descriptor; follows no link.

    Every verb raises MachineError. Writes are atomic and durable as those of `Fs`.
    """

    def names(self) -> dict[str, str]:
        """Every name and its kind: `file`, `directory`, `link` or `other`."""

    def put_tree(self, name: str, source: Path) -> None:
        """Copy a file or a tree of files and directories; refuses an existing `name`."""

    def put_file(self, name: str, data: bytes, mode: int, *, as_root_inside: bool = False) -> None:
        """Write a file, replacing a file; it is ours, or the machine's own root's."""

    def put_link(self, name: str, target: str, *, replace_file: bool = False) -> None:
        """Write a symbolic link, replacing a link, and a regular file only when told so."""

    def rename(self, old: str, new: str) -> None:
        """Rename; refuses to replace."""

    def remove(self, name: str) -> None:
        """Delete a name and all beneath it; idempotent."""

    def read_file(self, name: str, limit: int) -> bytes | None:
        """Content of a regular file, at most one directory down; None when absent."""

    def read_link(self, name: str) -> str | None:
        """Target of a link; None when absent or not a link."""

    def entries(self, name: str) -> tuple[Entry, ...]:
        """What `name` holds, with digests, for comparison with a seal."""

    def sweep(self) -> None:
        """Remove the temporaries of killed runs."""


class Machines(Protocol):
    """The worker machines of this host. Every verb raises MachineError."""

    def running(self) -> tuple[Worker, ...]:
        """The running workers, by name."""

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        """How it sees a directory of the host, by identity, at the same path or `at` another."""

    def read_link(self, worker: Worker, path: Path) -> str | None:
        """The target of a link as the machine sees it; None when absent or not a link."""

    def read_file(self, worker: Worker, path: Path, limit: int) -> bytes | None:
        """Content of a regular file as the machine sees it; None when absent."""

    def bind(self, worker: Worker, root: Path, at: Path | None = None) -> None:
        """Bind a directory read-only into the running machine, at the same path or `at`."""

    def mirror(
        self, rootfs: Path, directory: Path, *, create: bool
    ) -> AbstractContextManager[Mirror]:
        """Open a directory within a rootfs; one that is missing is created or an error."""

    def space(self, rootfs: Path) -> Space:
        """The filesystem of a rootfs; an error when it is mounted read-only."""

    def run(self, worker: Worker, argv: tuple[str, ...], timeout: float) -> Completed:
        """Run a command inside the machine, as its root, with a clean environment."""
