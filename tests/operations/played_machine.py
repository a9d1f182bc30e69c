"""A worker machine with its unit: systemd stops and starts it, machined lags behind, it boots."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from hostsync.activation.host import Host
from hostsync.errors import MachineError, UnitsError
from hostsync.ports import Completed, UnitState, UnitVerb, Worker
from tests.hostsync.world import FakeSystemd, Killed, PlayedMachines, World

NAME = "kube1"
UNIT = f"systemd-nspawn@{NAME}.service"
NEVER = 1e9


@dataclass
class PlayedMachine:
    """`forgotten_after`, `listed_after` and `ready_after` are seconds since the stop or start.

    `machined_away` is for how long after a stop machined cannot be asked.
    `unreachable_at` is the verb at which systemd cannot be asked, once.
    `dies_before` is the process's end: before that verb of the unit is queued, or after it.
    """

    world: World
    load: str = "loaded"
    active: str = "active"
    invocation: str = "first"
    stopped_at: float = 0.0
    started_at: float = -NEVER
    forgotten_after: float = 1.0
    listed_after: float = 0.5
    ready_after: float = 3.0
    says: str = "running"
    start_ends: str = "done"
    machined_away: float = 0.0
    dies_before: UnitVerb | None = None
    dies_after: UnitVerb | None = None
    unreachable_at: UnitVerb | None = None
    requests: list[str] = field(default_factory=list)

    def play(self, host: Host) -> Host:
        """The host with this machine among its units."""
        return replace(host, units=_Units(self), machines=_Machines(self))

    def stop(self) -> None:
        self.active, self.stopped_at = "inactive", self.world.time.now

    def start(self) -> None:
        self.active, self.started_at = "active", self.world.time.now
        self.invocation += "+"
        self.world.machines.bound.discard(NAME)

    def queue(self, verb: UnitVerb) -> str:
        if self.dies_before is verb:
            self.dies_before = None
            raise Killed
        if self.unreachable_at is verb:
            self.unreachable_at = None
            raise UnitsError("cannot reach systemd over the system bus")
        self.requests.append(verb.value)
        if verb is UnitVerb.STOP:
            self.stop()
        elif self.start_ends == "done":
            self.start()
        if self.dies_after is verb:
            self.dies_after = None
            raise Killed
        return "/machine/stop" if verb is UnitVerb.STOP else "/machine/start"

    @property
    def is_listed(self) -> bool:
        now = self.world.time.now
        if self.active == "inactive":
            return now - self.stopped_at < self.forgotten_after
        return now - self.started_at >= self.listed_after

    def state(self) -> UnitState:
        return UnitState(
            load=self.load, active=self.active, sub="", main_pid=0, invocation=self.invocation,
            restarts=0, result="success",
        )  # fmt: skip


class _Units(FakeSystemd):
    """The world's systemd, which has one more unit."""

    __slots__ = ("inner", "machine")

    def __init__(self, machine: PlayedMachine) -> None:
        self.machine, self.inner = machine, machine.world.systemd

    def state(self, unit: str) -> UnitState:
        return self.machine.state() if unit == UNIT else self.inner.state(unit)

    def queue(self, verb: UnitVerb, unit: str) -> str:
        return self.machine.queue(verb) if unit == UNIT else self.inner.queue(verb, unit)

    def job_result(self, job: str) -> str | None:
        if job.startswith("/machine"):
            return "done" if job.endswith("stop") else self.machine.start_ends
        return self.inner.job_result(job)

    def wait(self, seconds: float) -> None:
        self.inner.wait(seconds)

    def reset_failed(self, unit: str) -> None:
        if unit != UNIT:
            self.inner.reset_failed(unit)


class _Machines(PlayedMachines):
    """The world's machines, of which one comes and goes."""

    def __init__(self, machine: PlayedMachine) -> None:
        there = machine.world.machines
        super().__init__(there.workers, there.layout)
        self.machine = machine
        self.workers, self.bound = there.workers, there.bound
        self.mirror_fails, self.count = there.mirror_fails, there.count

    def running(self) -> tuple[Worker, ...]:
        machine = self.machine
        if machine.stopped_at and self._since_stop() < machine.machined_away:
            raise MachineError("cannot reach machined over the system bus")
        found = super().running()
        return tuple(each for each in found if each.name != NAME or self.machine.is_listed)

    def _since_stop(self) -> float:
        return self.machine.world.time.now - self.machine.stopped_at

    def run(self, worker: Worker, argv: tuple[str, ...], timeout: float) -> Completed:
        if argv[0] != "/usr/bin/systemctl":
            return super().run(worker, argv, timeout)
        machine = self.machine
        if not machine.is_listed:
            raise MachineError(f"machine {worker.name} is not there")
        is_up = machine.world.time.now - machine.started_at >= machine.ready_after
        return Completed(status=0, stdout=(machine.says if is_up else "starting") + "\n", stderr="")


def second_machine(world: World, name: str = "kube2") -> Path:
    """One more worker that runs."""
    rootfs = world.top / "machines" / name
    rootfs.mkdir()
    world.machines.workers[name] = Worker(name=name, rootfs=rootfs, bindable=True)
    return rootfs
