"""Promises that are kept when everything goes wrong at once.

Each test is a state of a real host: a bus that restarts, a disk that is full, a machine that goes
away, a service that is slow to stop, a process that dies while nobody else is told.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync.activation import switch
from hostsync.activation.host import Event, Host
from hostsync.activation.install import install
from hostsync.activation.judge import Bad, Sample, Watch, judge
from hostsync.activation.orders import settle_all
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.cli.services import prepare
from hostsync.cli.session import Session
from hostsync.config import Health, Readiness
from hostsync.daemon import Daemon
from hostsync.errors import (
    DiskError,
    Failed,
    HostsyncError,
    MachineError,
    Reason,
    Refused,
    UnitsError,
)
from hostsync.model import SlotKind, SlotName
from hostsync.ports import Seen, UnitState, UnitVerb, View, Worker
from hostsync.record import Phase
from hostsync.release import open_candidate
from hostsync.state import Outcome
from hostsync.sync import inspect, synchronise
from hostsync.wiring import Wired
from tests.hostsync.test_transaction import current_version, order
from tests.hostsync.world import (
    PLENTY,
    FakeSystemd,
    KillableDisk,
    Killed,
    PlayedMachines,
    PlayedProbe,
    World,
    installed,
    make_world,
)

OPTIONS = Options()
JUDGE = "hostsync-judge.service"


@pytest.fixture
def bundle(tmp_path: Path) -> World:
    return installed(make_world(tmp_path, SlotKind.BUNDLE))


def with_systemd(world: World, kind: type[FakeSystemd]) -> World:
    """The same host under a systemd that misbehaves as `kind` does."""
    old = world.systemd
    world.systemd = kind(
        time=old.time, layout=old.layout, process=old.process, active=old.active, sub=old.sub,
        invocation=old.invocation, notify=old.notify,
    )  # fmt: skip
    return world


def runs_current(world: World) -> bool:
    process = world.systemd.process
    program = world.layout.program(world.layout.current).resolve()
    return process is not None and process.program == program and program.exists()


# --- an order whose process dies ----------------------------------------------------------------


def die_while_switching(world: World) -> None:
    """The command is killed (-9) right after `current` was pointed at the candidate."""
    world.disk.changes, world.disk.kill_at = 0, None
    layout = world.layout

    def kill(event: Event) -> None:
        if event.act == "link" and event.object == str(layout.current):
            world.disk.kill_at = 0

    host = replace(world.host(), tell=kill)
    with pytest.raises(Killed):
        switch.upgrade(host, world.candidate("1.1.0"), OPTIONS)
    world.disk.kill_at = None
    record = world.host().record.load()
    assert record is not None
    assert record.phase is Phase.SWITCHING


def test_a_daemon_that_runs_already_ends_an_order_whose_command_was_killed(bundle: World) -> None:
    """Otherwise machines see an unjudged release until somebody types a command or reboots."""
    waits = 0

    def wait_for_start(seconds: float) -> str | None:
        nonlocal waits
        waits += 1
        if waits == 1:
            die_while_switching(bundle)
        if waits == 6:
            raise SystemExit(0)
        bundle.time.now += seconds
        return None

    with pytest.raises(SystemExit):
        Daemon((bundle.host(),), wait_for_start, lambda _: None, None).run()
    assert bundle.host().record.load() is None
    assert current_version(bundle) == "1.0.0"


def test_a_candidate_started_by_a_crash_of_the_old_agent_does_not_outlive_a_failed_switch(
    bundle: World,
) -> None:
    """Restart=always brings the crashed old agent back through `current` in mid-switch."""
    bundle.systemd.judge_result = "failed"

    crashes = [UnitVerb.RESTART]

    def crash_once(event: Event) -> None:
        if crashes and event.act == "link" and event.object == str(bundle.layout.current):
            bundle.systemd.queue(crashes.pop(), bundle.agent.unit)

    host = replace(bundle.host(), tell=crash_once)
    with pytest.raises(Failed):
        switch.upgrade(host, bundle.candidate("1.1.0"), OPTIONS)
    assert current_version(bundle) == "1.0.0"
    assert runs_current(bundle)


class StartsWhileUndone(KillableDisk):
    """At boot systemd starts the agent just before the undoing judge repoints `current`."""

    def __init__(self) -> None:
        super().__init__()
        self.before_link: Callable[[], None] | None = None

    def link(self, path: Path, target: str) -> None:
        if self.before_link is not None and path.name.endswith("current"):
            act, self.before_link = self.before_link, None
            act()
        super().link(path, target)


def test_an_agent_that_boots_while_its_switch_is_undone_runs_the_old_release(
    bundle: World,
) -> None:
    die_while_switching(bundle)
    bundle.systemd.queue(UnitVerb.STOP, bundle.agent.unit)
    bundle.time.boot += "+"
    disk = StartsWhileUndone()
    bundle.disk = disk

    def boot_the_agent() -> None:
        bundle.systemd.queue(UnitVerb.START, bundle.agent.unit)

    disk.before_link = boot_the_agent
    settle(bundle.host())
    assert current_version(bundle) == "1.0.0"
    assert runs_current(bundle)


# --- the judge is not there ---------------------------------------------------------------------


@dataclass(slots=True)
class JudgeIsJustEnding(FakeSystemd):
    """The judge of the order before has let go of the lock; its process is not gone yet."""

    judges: int = 0
    ending: bool = True

    def queue(self, verb: UnitVerb, unit: str) -> str:
        if unit == JUDGE and not (self.ending and verb is UnitVerb.START):
            self.judges += 1
        return super(JudgeIsJustEnding, self).queue(verb, unit)


def test_a_judge_that_is_about_to_end_is_not_taken_for_the_judge_of_the_next_order(
    bundle: World,
) -> None:
    """StartUnit on a unit that is still active is `done` at once and starts nothing."""
    order(bundle, "1.1.0")
    with_systemd(bundle, JudgeIsJustEnding)
    switch.roll_back(bundle.host(), OPTIONS)
    assert isinstance(bundle.systemd, JudgeIsJustEnding)
    assert bundle.systemd.judges == 1


@dataclass(slots=True)
class JudgeIsSkipped(FakeSystemd):
    """Its ConditionPathExistsGlob looks elsewhere: the job is `done`, nothing was started."""

    def state(self, unit: str) -> UnitState:
        found = super(JudgeIsSkipped, self).state(unit)
        return replace(found, active="inactive", sub="dead") if unit == JUDGE else found


def test_an_order_is_not_handed_to_a_judge_that_systemd_skipped(bundle: World) -> None:
    """`--config` with another state_root, or a state_root changed after the installation."""
    with_systemd(bundle, JudgeIsSkipped)
    with pytest.raises(Failed):
        switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)
    assert bundle.host().record.load() is None


# --- the bus restarts while an order is rolled back ----------------------------------------------


@dataclass(slots=True)
class BusRestartsAfterStop(FakeSystemd):
    """The connection breaks right after the candidate was stopped."""

    stopped: bool = False
    broken: bool = False

    def queue(self, verb: UnitVerb, unit: str) -> str:
        if verb is UnitVerb.STOP:
            self.stopped = True
        return super(BusRestartsAfterStop, self).queue(verb, unit)

    def reset_failed(self, unit: str) -> None:
        if self.stopped and not self.broken:
            self.broken = True
            raise UnitsError("systemd did not answer ResetFailedUnit: Connection reset by peer")
        super(BusRestartsAfterStop, self).reset_failed(unit)


def test_a_bus_that_restarts_during_a_roll_back_does_not_leave_the_agent_stopped(
    bundle: World,
) -> None:
    with_systemd(bundle, BusRestartsAfterStop)
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0", "crash"), OPTIONS)
    judged_until_the_record_is_gone(bundle)
    assert runs_current(bundle)


@dataclass(slots=True)
class EndOfStopUnheard(FakeSystemd):
    """The unit stops, but the signal that says so is lost (bus or systemd re-executed)."""

    def job_result(self, job: str) -> str | None:
        if self.requests[int(job.rpartition("/")[2])].startswith("StopUnit"):
            return None
        return super(EndOfStopUnheard, self).job_result(job)


def test_a_stop_whose_end_was_not_heard_does_not_leave_the_agent_stopped(bundle: World) -> None:
    with_systemd(bundle, EndOfStopUnheard)
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0", "crash"), OPTIONS)
    judged_until_the_record_is_gone(bundle)
    assert runs_current(bundle)


@dataclass(slots=True)
class RefusesToRestart(FakeSystemd):
    """The unit was masked, or its file broken, while the order was in flight."""

    def queue(self, verb: UnitVerb, unit: str) -> str:
        if verb is not UnitVerb.STOP and unit != JUDGE:
            raise UnitsError(f"systemd refused {verb.value}: UnitMasked")
        return super(RefusesToRestart, self).queue(verb, unit)


def test_a_restart_that_systemd_refuses_for_good_ends_the_order(bundle: World) -> None:
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)
    with_systemd(bundle, RefusesToRestart)
    judged_until_the_record_is_gone(bundle, tries=400)
    assert bundle.host().record.load() is None
    assert current_version(bundle) == "1.0.0"


def judged_until_the_record_is_gone(world: World, tries: int = 10) -> None:
    """Restart=on-failure: the judge is started again until it succeeds."""
    for _ in range(tries):
        try:
            settle(world.host())
        except HostsyncError:
            world.time.now += 0.25
        else:
            return


# --- disks that are full ------------------------------------------------------------------------


class FullState(KillableDisk):
    """The filesystem of the state is full for new files; slots are on another one."""

    def __init__(self, full: Callable[[Path], bool]) -> None:
        super().__init__()
        self.full = full

    def write(self, path: Path, data: bytes | Iterable[bytes], mode: int) -> None:
        if self.full(path):
            raise DiskError(f"cannot write {path}: No space left on device")
        super().write(path, data, mode)


def test_a_full_disk_does_not_keep_a_failed_candidate_from_being_rolled_back(
    bundle: World,
) -> None:
    """What going back needs is renames; a note that cannot be written must not prevent them."""
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0", "crash"), OPTIONS)
    written: list[Path] = []

    def full_after_the_trial_began(path: Path) -> bool:
        if path.name == "record.json":
            written.append(path)
        return path.name == "record.json" and len(written) > 1

    bundle.disk = FullState(full_after_the_trial_began)
    judged_until_the_record_is_gone(bundle)
    assert current_version(bundle) == "1.0.0"


def test_a_release_that_was_restored_is_not_restarted_again_and_again_on_a_full_disk(
    bundle: World,
) -> None:
    """One roll back, then stay up: the history cannot be written, so the judge tries again."""
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0", "crash"), OPTIONS)
    bundle.disk = FullState(lambda path: path.name in ("history.jsonl", "state.json"))
    judged_until_the_record_is_gone(bundle, tries=5)
    stops = bundle.systemd.requests.count(f"StopUnit {bundle.agent.unit}")
    assert stops == 1


def test_an_order_undone_on_a_full_disk_gives_its_own_space_back_first(bundle: World) -> None:
    """The staged release lies in the trash, the history wants a block, and every verb fails."""
    root = bundle.layout.root

    def full(path: Path) -> bool:
        leftovers = [p for p in root.iterdir() if p.name.startswith(".hostsync-")]
        return path.name == "history.jsonl" and bool(leftovers)

    bundle.disk = FullState(full)
    with pytest.raises(HostsyncError):
        order(bundle, "1.1.0", entry=ONLY_ON_THE_HOST)
    settle_all([bundle.host()])
    assert bundle.host().record.load() is None


ONLY_ON_THE_HOST = '#!/bin/sh\n# behaviour=good\n[ -z "$MACHINE" ] || exit 127\necho agent 1.1.0\n'


class StubbornTrash(KillableDisk):
    """Something in a discarded release cannot be deleted (immutable, or mounted over)."""

    def remove(self, path: Path) -> None:
        if path.name.startswith(".hostsync-trash-") and os.path.lexists(path):
            raise DiskError(f"cannot remove {path}: Operation not permitted")
        super().remove(path)


def test_trash_that_cannot_be_deleted_does_not_keep_an_order_from_ending(bundle: World) -> None:
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0", "crash"), OPTIONS)
    bundle.disk = StubbornTrash()
    judged_until_the_record_is_gone(bundle, tries=3)
    assert bundle.host().record.load() is None


# --- what is no fault of the candidate ------------------------------------------------------------


class GoesAway(PlayedMachines):
    """The machine is powered off between being listed and being looked at."""

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        self.workers.pop(worker.name, None)
        raise MachineError(f"machine {worker.name!r} is not running; see `machinectl list`")


def with_machines(world: World, kind: type[PlayedMachines]) -> World:
    old = world.machines
    world.machines = kind(old.workers, old.layout)
    world.machines.bound = old.bound
    return world


def test_a_machine_that_goes_away_at_the_verdict_is_no_fault_of_the_release(bundle: World) -> None:
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)
    with_machines(bundle, GoesAway)
    line = settle(bundle.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


class RestartsOnce(PlayedMachines):
    """machined (or the bus) is being restarted at the moment it is asked."""

    asked = 0

    def running(self) -> tuple[Worker, ...]:
        self.asked += 1
        if self.asked == 1:
            raise MachineError("the bus broke twice; check that dbus runs")
        return super().running()


def test_machined_restarting_at_the_verdict_is_no_fault_of_the_release(bundle: World) -> None:
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)
    with_machines(bundle, RestartsOnce)
    line = settle(bundle.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


def test_a_machine_that_cannot_follow_does_not_make_the_release_known_as_bad(
    bundle: World,
) -> None:
    """Rolled back it may be; but the same digest must be orderable once the machine is mended."""
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)
    bundle.machines.mirror_fails = True
    line = settle(bundle.host())
    assert line is not None
    assert line.outcome is Outcome.ROLLED_BACK
    assert bundle.host().state.known_bad() == ()


def test_an_outage_that_begins_during_the_trial_is_no_fault_of_the_release(
    tmp_path: Path,
) -> None:
    """The previous release's self-test fails by now too: compare with now, not with then."""
    world = make_world(tmp_path, SlotKind.BUNDLE)
    world.agent = replace(world.agent, self_test=("bin/hostsync-credential", "check"))
    shims = {v: SHIM_OF.replace("VERSION", v) for v in ("1.0.0", "1.1.0")}
    install(world.host(), world.candidate("1.0.0", shim=shims["1.0.0"]), start=True)
    switch.upgrade(world.host(), world.candidate("1.1.0", shim=shims["1.1.0"]), OPTIONS)
    world.machines.environment["OUTAGE"] = "1"
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


SHIM_OF = '#!/bin/sh\n[ "$1$OUTAGE" != check1 ] || exit 5\necho "hostsync-credential VERSION"\n'

OLD, NEW = "a" * 32, "b" * 32
STOPPING = UnitState(
    load="loaded", active="deactivating", sub="stop-sigterm", main_pid=6, invocation=OLD,
    restarts=0, result="success",
)  # fmt: skip
WAITING = replace(STOPPING, active="inactive", sub="dead", main_pid=0, invocation="")


@pytest.mark.parametrize(
    ("unit", "baseline"),
    [(STOPPING, OLD), (WAITING, "")],
    ids=["the-old-release-takes-its-time-to-stop", "the-job-waits-for-network-online"],
)
def test_time_before_the_candidate_is_started_is_not_counted_against_it(
    unit: UnitState, baseline: str
) -> None:
    """TimeoutStopSec= is 90 s by default, as long as the whole start deadline."""
    health = Health(readiness=Readiness.STABLE)
    watch = Watch(health=health, started=0.0, baseline=baseline)
    at = health.start_seconds
    verdict = judge(watch, Sample(at=at, unit=unit, job=None, runs_candidate=False))
    assert not isinstance(verdict, Bad)


def test_a_slot_root_reached_through_a_link_is_no_fault_of_the_release(tmp_path: Path) -> None:
    """/usr/local is a link to /var/usrlocal on Fedora CoreOS and its kin."""
    (tmp_path / "var").mkdir()
    (tmp_path / "usr").symlink_to("var")
    world = installed(make_world(tmp_path / "usr", SlotKind.FILE))
    assert order(world, "1.1.0").outcome is Outcome.COMPLETE


def test_words_that_are_no_text_do_not_keep_the_judge_from_going_back(bundle: World) -> None:
    """A guest names a file with bytes that are no UTF-8; the error that names it is recorded."""
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)

    class Unspeakable(PlayedMachines):
        def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
            raise MachineError(f"refusing {root}/{os.fsdecode(b'.hostsync-' + bytes([255]))}")

    with_machines(bundle, Unspeakable)
    line = settle(bundle.host())
    assert line is not None


# --- plans --------------------------------------------------------------------------------------


@dataclass(slots=True)
class NoSuchService(FakeSystemd):
    """The unit is misspelt in the configuration, or its file cannot be parsed."""

    load: str = field(default="not-found")

    def state(self, unit: str) -> UnitState:
        if unit == JUDGE:
            return super(NoSuchService, self).state(unit)
        return replace(WAITING, load=self.load)


@pytest.mark.parametrize("load", ["not-found", "bad-setting", "error"])
def test_a_service_that_systemd_cannot_load_is_refused_and_not_committed_untried(
    bundle: World, load: str
) -> None:
    with_systemd(bundle, NoSuchService)
    assert isinstance(bundle.systemd, NoSuchService)
    bundle.systemd.load = load
    with pytest.raises(Refused):
        switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), OPTIONS)


def test_room_is_counted_once_for_each_copy_on_one_filesystem(bundle: World) -> None:
    """/usr/local and /var/lib/machines are one filesystem by default: N machines, N+1 copies."""
    path = bundle.candidate("1.1.0")
    with open_candidate(path, agent="hostsync", kind=SlotKind.BUNDLE) as candidate:
        size = candidate.inspect().size
    host = bundle.host()
    assert isinstance(host.probe, PlayedProbe)
    room = replace(PLENTY, free=host.config.reserve_bytes + size + 1)
    host.probe.space_now = bundle.machines.space_now = room
    with pytest.raises(Refused) as refused:
        switch.upgrade(host, path, OPTIONS)
    assert refused.value.reason is Reason.NO_SPACE


class NoMachined(PlayedMachines):
    """There is no systemd-machined on this host, or it does not answer."""

    def running(self) -> tuple[Worker, ...]:
        raise MachineError("machined does not serve: ServiceUnknown")


def test_best_effort_goes_ahead_without_machined(bundle: World) -> None:
    with_machines(bundle, NoMachined)
    switch.upgrade(bundle.host(), bundle.candidate("1.1.0"), Options(best_effort=True))
    line = settle(bundle.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


# --- machines -----------------------------------------------------------------------------------


class BootTime(PlayedMachines):
    """A machine about to boot: its settings are written, or refused."""

    settings_refused = ""

    def bind_at_boot(
        self, name: str, roots: tuple[Path, ...], credential: Path | None = None
    ) -> bool:
        if self.settings_refused:
            raise MachineError(self.settings_refused)
        return True


class Boot(Session):
    """`hostsync sync --before-boot` on a played host."""

    def __init__(self, world: World) -> None:
        super().__init__(agent=None, as_json=False, config=Path("/nonexistent"))
        host: Host = world.host()
        machines = replace(host.config.machines, root=world.top / "machines")
        self._wired = Wired(
            config=replace(host.config, machines=machines), machines=world.machines, hosts=(host,)
        )


def test_before_boot_touches_no_machine_while_nothing_is_installed_on_the_host(
    tmp_path: Path,
) -> None:
    """An installation that failed leaves the slot root; kubelet's program must stay."""
    world = with_machines(make_world(tmp_path, SlotKind.FILE), BootTime)
    world.layout.root.mkdir(parents=True)
    copy = world.inside("kube1", world.agent.commands[0].path)
    copy.parent.mkdir(parents=True)
    copy.write_text("the copy that kubelet runs")
    prepare(Boot(world), "kube1")
    assert not copy.is_symlink()
    assert copy.read_text() == "the copy that kubelet runs"


def test_before_boot_the_mirror_is_brought_in_step_where_no_bind_can_be_set(bundle: World) -> None:
    """SettingsUntrusted is no reason to let kubelet start on another release."""
    with_machines(bundle, BootTime)
    assert isinstance(bundle.machines, BootTime)
    bundle.machines.settings_refused = "machine 'kube1' has only the untrusted settings"
    bundle.machines.bound.clear()
    bundle.inside("kube1", bundle.layout.current).unlink()
    with suppress(MachineError):
        prepare(Boot(bundle), "kube1")
    host = bundle.host()
    assert inspect(host.machines, host.agent, bundle.machines.workers["kube1"]).in_step


@pytest.mark.parametrize("damage", ["no-seal", "seal-left-behind"])
def test_a_mirror_of_single_files_converges_from_half_a_move(tmp_path: Path, damage: str) -> None:
    """A process killed between the two renames of a slot, or a guest that deletes one of two."""
    world = installed(make_world(tmp_path, SlotKind.FILE))
    layout = world.layout
    slot = layout.slot(SlotName.BLUE)
    seal = world.inside("kube1", layout.seal(slot))
    if damage == "no-seal":
        seal.unlink()
    else:
        seal.rename(seal.with_name(f".hostsync-new-{slot.name}.RELEASE"))
    host = world.host()
    (worker,) = host.machines.running()
    assert synchronise(host.machines, host.agent, worker).in_step


class Writable(PlayedMachines):
    """The slot root of the host is bound into the machine, but not read-only, or twice."""

    depth = 1

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        return Seen(view=View.BIND, read_only=self.depth > 1, depth=self.depth)


@pytest.mark.parametrize("depth", [1, 2], ids=["read-write", "stacked"])
def test_a_bind_that_is_not_as_it_should_be_is_told(bundle: World, depth: int) -> None:
    with_machines(bundle, Writable)
    assert isinstance(bundle.machines, Writable)
    bundle.machines.depth = depth
    host = bundle.host()
    report = inspect(host.machines, host.agent, bundle.machines.workers["kube1"])
    assert report.problem if depth == 1 else "2 times" in report.note
