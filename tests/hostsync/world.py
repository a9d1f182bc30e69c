"""A host that fits in a directory: real disk and real processes, a systemd and machined that obey.

Candidates are real programs (shell scripts), mirrors are written by the real nspawn library
beneath a real rootfs directory, and the disk is the real one behind a door that can be killed.
Only systemd, machined's mounts and the passing of time are played.
"""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from hostsync import config
from hostsync.activation.host import Event, Host
from hostsync.activation.install import install
from hostsync.assets import ASSETS_INSIDE, PLACES
from hostsync.config import Agent, Command, Config, Health, Readiness
from hostsync.errors import MachineError
from hostsync.fs import Disk
from hostsync.layout import Layout
from hostsync.machines import NspawnMachines
from hostsync.model import Entry, SlotKind
from hostsync.ports import Completed, Draft, Mirror, Seen, Space, UnitState, UnitVerb, View, Worker
from hostsync.probe import SystemProbe
from hostsync.record import RecordFile
from hostsync.state import State
from hostsync.workers import Machines
from nspawn.machined import Machined

SHARE = Path(config.__file__).parent / "share"


PLENTY = Space(device=1, free=1 << 40, read_only=False, noexec=False)


Count = Callable[[str, Path], None]


def nothing() -> None:
    """What is done before a change unless a test wants more."""


class Killed(BaseException):
    """The process dies here: nothing that comes after it happens."""


@dataclass(slots=True)
class CountedDraft:
    """A real draft; each of its parts counts, and so does each half of a file."""

    inner: Draft
    top: Path
    count: Count

    def make_directory(self, path: str) -> None:
        self.count("draft", self.top / path)
        self.inner.make_directory(path)

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        self.count("draft", self.top / path)
        self.inner.write(path, self._halved(content, path), mode)

    def _halved(self, content: Iterable[bytes], path: str) -> Iterator[bytes]:
        for chunk in content:
            yield chunk[: len(chunk) // 2]
            self.count("draft more of", self.top / path)
            yield chunk[len(chunk) // 2 :]


class KillableDisk(Disk):
    """The real disk, until the process is killed before (or right after) its n-th change."""

    def __init__(self) -> None:
        self.changes = 0
        self.kill_at: int | None = None
        self.log: list[str] = []
        self.before_each: Callable[[], None] = nothing

    def count(self, verb: str, path: Path) -> None:
        """One more change is about to happen, here or at another door."""
        if self.kill_at is not None and self.changes >= self.kill_at:
            raise Killed
        self.before_each()
        self.changes += 1
        self.log.append(f"{verb} {path.name}")

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        self.count("make", path)
        super().make_directory(path, mode)

    def write(self, path: Path, data: bytes | Iterable[bytes], mode: int) -> None:
        self.count("write", path)
        super().write(path, data, mode)

    @contextmanager
    def draft(self, path: Path) -> Iterator[Draft]:
        with super().draft(path) as draft:
            yield CountedDraft(draft, path, self.count)

    def link(self, path: Path, target: str) -> None:
        self.count("link", path)
        super().link(path, target)

    def move(self, old: Path, new: Path) -> None:
        self.count(f"move {old.name} to", new)
        super().move(old, new)

    def exchange(self, one: Path, other: Path) -> None:
        self.count(f"exchange {one.name} and", other)
        super().exchange(one, other)

    def remove(self, path: Path) -> None:
        self.count("remove", path)
        super().remove(path)


@dataclass(slots=True)
class Time:
    """`ports.Clock` that passes only when somebody waits."""

    now: float = 1000.0
    boot: str = "boot-1"

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now

    def boot_id(self) -> str:
        return self.boot

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(slots=True)
class Process:
    """What the played systemd runs: a release's daemon that behaves as its file says."""

    pid: int
    program: Path
    behaviour: str
    since: float
    identity: tuple[int, int]


@dataclass(slots=True)
class FakeSystemd:
    """`ports.Units` for one service, with Restart=always and a judge unit that just starts."""

    time: Time
    layout: Layout
    process: Process | None = None
    active: str = "inactive"
    sub: str = "dead"
    invocation: int = 0
    restarts: int = 0
    result: str = "success"
    judge_result: str = "done"
    judge_runs: bool = False
    count: Count = lambda verb, path: None
    results: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    pids: Iterator[int] = field(default_factory=lambda: itertools.count(4242))
    notify: bool = True

    def state(self, unit: str) -> UnitState:
        self._advance()
        if unit == "hostsync-judge.service":
            return _unit(load="loaded", active="active" if self.judge_runs else "inactive")
        return UnitState(
            load="loaded", active=self.active, sub=self.sub,
            main_pid=self.process.pid if self.process else 0,
            invocation=f"{self.invocation:032x}" if self.invocation else "",
            restarts=self.restarts, result=self.result,
        )  # fmt: skip

    def queue(self, verb: UnitVerb, unit: str) -> str:
        self.count(verb.value, Path(unit))
        job = f"/job/{len(self.requests)}"
        self.requests.append(f"{verb.value} {unit}")
        if unit == "hostsync-judge.service":
            self.results[job] = self.judge_result
            self.judge_runs = self.judge_result == "done"
        elif verb is UnitVerb.STOP:
            self.process, self.active, self.sub = None, "inactive", "dead"
            self.results[job] = "done"
        elif verb is UnitVerb.RESTART or self.process is None:
            self.restarts = 0
            self._start()
            self.results[job] = "pending"
            self._advance()
        else:
            self.results[job] = "done"
        return job

    def job_result(self, job: str) -> str | None:
        self._advance()
        result = self.results[job]
        if result != "pending":
            return result
        if self.process is None or self.restarts:
            return "failed"
        return "done" if self.active == "active" else None

    def wait(self, seconds: float) -> None:
        self.time.now += min(seconds, 0.5)
        self._advance()

    def reset_failed(self, unit: str) -> None:
        self.requests.append(f"reset {unit}")

    def kill(self, unit: str) -> None:
        self.process = None

    def reload(self) -> None:
        self.requests.append("reload")

    def enable(self, units: tuple[str, ...]) -> None:
        self.requests.append(f"enable {' '.join(units)}")

    def _start(self) -> None:
        program = self.layout.program(self.layout.current).resolve()
        behaviour = behaviour_of(program)
        self.invocation += 1
        self.result = "success"
        status = program.stat()
        identity = (status.st_dev, status.st_ino)
        self.process = Process(next(self.pids), program, behaviour, self.time.now, identity)
        ready = behaviour in ("good", "late-crash") and self.notify
        self.active, self.sub = ("active", "running") if ready else ("activating", "start")
        if not self.notify:
            self.active, self.sub = "active", "running"

    def _advance(self) -> None:
        running = self.process
        if running is None:
            return
        age = self.time.now - running.since
        match running.behaviour:
            case "crash" if age > 0.2:
                self._end("exit-code")
            case "late-crash" if age > 1.2:
                self._end("exit-code")
            case "exit0" if age > 0.2:
                self.process, self.active, self.sub = None, "inactive", "dead"

    def _end(self, result: str) -> None:
        self.restarts += 1
        self._start()
        self.result = result
        self.active, self.sub = "activating", "auto-restart"


@dataclass(slots=True)
class PlayedProbe(SystemProbe):
    """The real probe, but for processes that the played systemd "runs"."""

    systemd: FakeSystemd
    space_now: Space = PLENTY

    def executable(self, pid: int) -> tuple[int, int] | None:
        process = self.systemd.process
        return process.identity if process is not None and process.pid == pid else None

    def executable_path(self, pid: int) -> Path | None:
        process = self.systemd.process
        return process.program if process is not None and process.pid == pid else None

    def space(self, path: Path) -> Space:
        return self.space_now

    def journal(self, unit: str, lines: int, *, after: str, but: str) -> tuple[str, ...]:
        return ("the daemon's last words",)


@dataclass(slots=True)
class CountedMirror:
    """The real mirror; each of its changes counts, so that the process can be killed there."""

    inner: Mirror
    count: Count

    def names(self) -> dict[str, str]:
        return self.inner.names()

    def put_tree(self, name: str, source: Path) -> None:
        self.count("mirror tree", Path(name))
        self.inner.put_tree(name, source)

    def put_file(self, name: str, data: bytes, mode: int, *, as_root_inside: bool = False) -> None:
        self.count("mirror file", Path(name))
        self.inner.put_file(name, data, mode, as_root_inside=as_root_inside)

    def put_link(self, name: str, target: str, *, replace_file: bool = False) -> None:
        self.count("mirror link", Path(name))
        self.inner.put_link(name, target, replace_file=replace_file)

    def rename(self, old: str, new: str) -> None:
        self.count(f"mirror rename {old} to", Path(new))
        self.inner.rename(old, new)

    def remove(self, name: str) -> None:
        if name in self.inner.names():
            self.count("mirror remove", Path(name))
        self.inner.remove(name)

    def read_file(self, name: str, limit: int) -> bytes | None:
        return self.inner.read_file(name, limit)

    def read_link(self, name: str) -> str | None:
        return self.inner.read_link(name)

    def entries(self, name: str) -> tuple[Entry, ...]:
        return self.inner.entries(name)

    def sweep(self) -> None:
        self.inner.sweep()


class PlayedMachines(NspawnMachines):
    """Machines whose rootfs is a real directory; binds are a set, commands run on this host."""

    def __init__(self, workers: Mapping[str, Worker], layout: Layout) -> None:
        super().__init__(Machines(), Machined("unix:path=/nonexistent"))
        self.workers = dict(workers)
        self.layout = layout
        self.bound: set[str] = set()
        self.bound_at: dict[tuple[str, Path], list[Path]] = {}
        """What is bound elsewhere than at its own path, by machine and place, oldest first."""
        self.bind_refused = ""
        self.mirror_fails = False
        self.environment: dict[str, str] = {}
        self.space_now = PLENTY
        self.count: Count = lambda verb, path: None

    def running(self) -> tuple[Worker, ...]:
        return tuple(self.workers[name] for name in sorted(self.workers))

    def _root(self, worker: Worker) -> Path:
        if worker.name in self.bound or worker.rootfs is None:
            return Path("/")
        return worker.rootfs

    def space(self, rootfs: Path) -> Space:
        return self.space_now

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        if at is not None:
            stacked = self.bound_at.get((worker.name, at), [])
            bound = bool(stacked) and stacked[-1] == root
            view = View.BIND if bound else View.MIRROR
            return Seen(view=view, read_only=bound, depth=len(stacked))
        if worker.name in self.bound:
            return Seen(view=View.BIND, read_only=True, depth=1)
        there = worker.rootfs is not None and _beneath(worker.rootfs, root).is_dir()
        return Seen(view=View.MIRROR if there else View.NONE)

    def read_link(self, worker: Worker, path: Path) -> str | None:
        there = _beneath(self._root(worker), path)
        return str(there.readlink()) if there.is_symlink() else None

    def read_file(self, worker: Worker, path: Path, limit: int) -> bytes | None:
        there = _beneath(self._root(worker), path)
        return there.read_bytes()[:limit] if there.is_file() else None

    def bind(self, worker: Worker, root: Path, at: Path | None = None) -> None:
        if self.bind_refused:
            raise MachineError(self.bind_refused)
        if at is not None:
            self.bound_at.setdefault((worker.name, at), []).append(root)
            return
        self.bound.add(worker.name)

    @contextmanager
    def mirror(self, rootfs: Path, directory: Path, *, create: bool) -> Iterator[Mirror]:
        if self.mirror_fails and create:
            raise MachineError(f"the rootfs {rootfs} is broken")
        with super().mirror(rootfs, directory, create=create) as mirror:
            yield CountedMirror(mirror, self.count)

    def run(self, worker: Worker, argv: tuple[str, ...], timeout: float) -> Completed:
        program = _beneath(self._root(worker), Path(argv[0]))
        done = subprocess.run(
            [program, *argv[1:]], capture_output=True, text=True, check=False, timeout=timeout,
            env={"MACHINE": worker.name, "PATH": "/usr/bin:/bin", **self.environment},
        )  # fmt: skip
        return Completed(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


@dataclass(slots=True)
class World:
    """One played host with its directory tree, agent and machines."""

    top: Path
    agent: Agent
    time: Time
    disk: KillableDisk
    systemd: FakeSystemd
    machines: PlayedMachines
    events: list[Event] = field(default_factory=list)
    policy: Machines = field(default_factory=Machines)

    @property
    def layout(self) -> Layout:
        return self.agent.layout

    def host(self) -> Host:
        """A new process on this host: only disk, systemd and machines outlive it."""
        directory = self.top / "state" / self.agent.name
        settings = Config(
            agents={self.agent.name: self.agent},
            state_root=self.top / "state",
            run_root=self.top / "run",
            unit_root=self.top / "units",
            credential_file=self.top / "etc/credential.toml",
            machines=self.policy,
            reserve_bytes=1 << 20,
        )
        return Host(
            config=settings, agent=self.agent, fs=self.disk, units=self.systemd,
            probe=PlayedProbe(self.systemd), clock=self.time, machines=self.machines,
            record=RecordFile(directory, self.disk), state=State(directory, self.disk),
            tell=self.events.append,
        )  # fmt: skip

    def reboot(self) -> None:
        """Lose every process; the service comes up from `current`, binds are gone."""
        self.time.boot += "+"
        self.time.now = 5.0
        self.machines.bound.clear()
        self.machines.bound_at.clear()
        self.systemd.process = None
        self.systemd.active, self.systemd.sub = "inactive", "dead"
        self.systemd.invocation += 100
        self.systemd.queue(UnitVerb.START, self.agent.unit)

    def candidate(self, version: str, behaviour: str = "good", **programs: str) -> Path:
        """A release to order: its daemon behaves as told, its programs answer `version`."""
        where = self.top / "candidates" / f"{version}-{behaviour}"
        where.parent.mkdir(exist_ok=True, parents=True)
        name = self.agent.name
        if self.layout.kind is SlotKind.FILE:
            _program(where, programs.get("entry") or script(name, version, behaviour))
            return where
        _program(where / "bin/hostsync", programs.get("entry") or script(name, version, behaviour))
        shim = programs.get("shim") or script("hostsync-credential", version, behaviour)
        _program(where / "bin/hostsync-credential", shim)
        for asset in PLACES:
            content = (SHARE / asset).read_bytes() + f"# of {version}\n".encode()
            _write(where / ASSETS_INSIDE / asset, content)
        return where

    def inside(self, name: str, path: Path) -> Path:
        """Where the host finds what a machine's rootfs has at `path`."""
        rootfs = self.machines.workers[name].rootfs
        assert rootfs is not None
        return _beneath(rootfs, path)


def make_world(top: Path, kind: SlotKind, machines: Iterable[str] = ("kube1",)) -> World:
    """A host without a release yet."""
    root = top / "usr/local/lib/agent"
    bin_root = top / "usr/local/bin"
    health = Health(
        readiness=Readiness.NOTIFY if kind is SlotKind.BUNDLE else Readiness.STABLE,
        start_seconds=20, window_seconds=3, stable_seconds=2,
    )  # fmt: skip
    base = config.hostsync_agent if kind is SlotKind.BUNDLE else config.flex_agent
    agent = replace(base(root, bin_root), health=health, self_test=())
    assert all(isinstance(command, Command) for command in agent.commands)
    time = Time()
    systemd = FakeSystemd(time=time, layout=agent.layout, notify=kind is SlotKind.BUNDLE)
    workers = {}
    for name in machines:
        rootfs = top / "machines" / name
        rootfs.mkdir(parents=True)
        workers[name] = Worker(name=name, rootfs=rootfs, bindable=True)
    played = PlayedMachines(workers, agent.layout)
    disk = KillableDisk()
    systemd.count = played.count = disk.count
    return World(top=top, agent=agent, time=time, disk=disk, systemd=systemd, machines=played)


def installed(world: World) -> World:
    """Install 1.0.0 and start it, as an operator would."""
    install(world.host(), world.candidate("1.0.0"), start=True)
    if world.systemd.process is None:
        world.systemd.queue(UnitVerb.START, world.agent.unit)
    return world


def script(name: str, version: str, behaviour: str) -> str:
    """A program that says its version, and tells the played systemd how its daemon behaves."""
    return f'#!/bin/sh\n# behaviour={behaviour}\necho "{name} {version} (protocol 1)"\n'


def behaviour_of(program: Path) -> str:
    lines = program.read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("# behaviour="))


def snapshot(top: Path, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every path beneath `top` with its kind, mode, and content or target.

    Without what is at `top` under a name that begins so.
    """
    found: dict[str, str] = {}
    with os.scandir(top) as entries:
        for entry in entries:
            if not entry.name.startswith(but):
                _photograph(entry, entry.name, found)
    return found


def _photograph(entry: os.DirEntry[str], path: str, found: dict[str, str]) -> None:
    mode = entry.stat(follow_symlinks=False).st_mode
    what = ""
    if stat.S_ISLNK(mode):
        what = os.readlink(entry)
    elif stat.S_ISREG(mode):
        with open(entry, "rb", buffering=0) as file:
            what = file.read().hex()
    found[path] = f"{mode:o} {what}"
    if stat.S_ISDIR(mode):
        with os.scandir(entry) as entries:
            for inner in entries:
                _photograph(inner, f"{path}/{inner.name}", found)


def _program(path: Path, text: str) -> None:
    _write(path, text.encode())
    path.chmod(0o755)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _beneath(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _unit(*, load: str, active: str) -> UnitState:
    return UnitState(
        load=load, active=active, sub="", main_pid=0, invocation="", restarts=0, result=""
    )
