"""The daemon between upgrades: machines are brought in step, systemd is told, a signal ends it."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from hostsync import lock
from hostsync.activation import switch
from hostsync.activation.host import Host
from hostsync.activation.stage import Options
from hostsync.daemon import DEEP_EVERY, RETRY_SECONDS, Daemon
from hostsync.errors import MachineError
from hostsync.model import SlotKind
from hostsync.ports import Worker
from hostsync.record import Phase
from hostsync.sync import inspect
from tests.hostsync.test_transaction import current_version
from tests.hostsync.world import Killed, World, installed, make_world

Act = Callable[[], str | None]
"""What happens while the daemon waits, and the machine that starts meanwhile."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The daemon takes the process's signals for itself."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def host(tmp_path: Path) -> World:
    return installed(make_world(tmp_path, SlotKind.BUNDLE))


@dataclass
class Life:
    """One run of the daemon on a played host; every wait lets its time pass."""

    world: World
    watchdog: float | None = None
    acts: list[Act] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When each wait began and how long it was to be."""
    ends_by: signal.Signals = signal.SIGTERM

    def wait_for_start(self, seconds: float) -> str | None:
        self.waits.append((self.world.time.now, seconds))
        if not self.acts:
            signal.raise_signal(self.ends_by)
        act = self.acts.pop(0)
        self.world.time.now += seconds
        return act()

    def tell(self, message: str) -> None:
        self.told.append((self.world.time.now, message))

    def run(self, *hosts: Host) -> None:
        daemon = Daemon(
            hosts or (self.world.host(),), self.wait_for_start, self.tell, self.watchdog
        )
        with pytest.raises(SystemExit) as ended:
            daemon.run()
        assert ended.value.code == 0


def nothing() -> None:
    return None


def in_step(world: World, name: str = "kube1") -> bool:
    host = world.host()
    return inspect(host.machines, host.agent, world.machines.workers[name], deep=True).in_step


def drift(world: World) -> None:
    """A guest removes its mirror's link."""
    world.inside("kube1", world.layout.current).unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success(host: World, number: signal.Signals) -> None:
    Life(host, ends_by=number).run()


def test_it_is_ready_once_every_machine_was_looked_at(host: World) -> None:
    drift(host)
    life = Life(host)
    life.run()
    assert [message.splitlines()[0] for _, message in life.told] == ["READY=1"]
    assert in_step(host)


def test_it_is_ready_even_when_no_machine_can_be_helped(host: World) -> None:
    drift(host)
    host.machines.mirror_fails = True
    life = Life(host)
    life.run()
    assert life.told
    assert "is broken" in host.events[-1].detail


def test_a_machine_that_starts_is_in_step_before_the_next_look_is_due(host: World) -> None:
    def start_kube2() -> str:
        rootfs = host.top / "machines/kube2"
        rootfs.mkdir()
        host.machines.workers["kube2"] = Worker(name="kube2", rootfs=rootfs, bindable=True)
        host.time.now -= 59
        return "kube2"

    life = Life(host, acts=[start_kube2])
    life.run()
    assert in_step(host, "kube2")
    assert host.machines.see(host.machines.workers["kube2"], host.layout.root).view == "bind"
    assert life.waits[1][0] - life.waits[0][0] == 1


def test_drift_is_repaired_at_the_next_look(host: World) -> None:
    def drifted() -> None:
        drift(host)

    seen: list[bool] = []
    life = Life(host, acts=[drifted, lambda: seen.append(in_step(host))])
    life.run()
    assert seen == [True]
    assert [seconds for _, seconds in life.waits] == [60, 60, 60]


def test_altered_bytes_in_a_mirror_are_found_by_a_look_at_the_content(host: World) -> None:
    inside = host.inside("kube1", host.layout.program(host.layout.current).resolve())
    inside.write_bytes(b"altered")
    Life(host, acts=[nothing] * DEEP_EVERY).run()
    assert in_step(host)


def test_what_is_in_step_is_left_alone_and_not_talked_about(host: World) -> None:
    host.events.clear()
    changes = host.disk.changes
    Life(host, acts=[nothing] * 3).run()
    assert host.events == []
    assert host.disk.changes == changes


def test_a_machine_that_lost_its_bind_has_it_back_after_the_next_look(host: World) -> None:
    def lose() -> None:
        host.machines.bound.clear()

    Life(host, acts=[lose, nothing]).run()
    assert host.machines.bound == {"kube1"}


def test_a_machine_that_takes_no_bind_is_served_by_the_mirror_without_much_talk(
    host: World,
) -> None:
    host.machines.bound.clear()
    host.machines.bind_refused = "no propagation"
    host.events.clear()
    life = Life(host, acts=[nothing] * 3)
    life.run()
    assert [seconds for _, seconds in life.waits] == [60] * 4
    assert host.events == []


def test_a_taken_lock_is_retried_soon_until_it_is_free(host: World) -> None:
    drift(host)
    with ExitStack() as other:
        other.enter_context(lock.held(host.top / "run", "hostsync upgrade"))

        def let_go() -> None:
            other.close()

        life = Life(host, acts=[nothing, nothing, let_go])
        life.run()
    assert [seconds for _, seconds in life.waits] == [RETRY_SECONDS] * 3 + [60]
    assert in_step(host)
    assert not [event for event in host.events if event.stage == "failed"]


def test_a_machine_that_cannot_be_helped_is_tried_ever_less_often(host: World) -> None:
    drift(host)
    host.machines.mirror_fails = True

    def mend() -> None:
        host.machines.mirror_fails = False

    life = Life(host, acts=[*[nothing] * 6, mend, nothing])
    life.run()
    assert [seconds for _, seconds in life.waits] == [2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert in_step(host)


def test_machined_that_cannot_be_asked_is_no_reason_to_end(host: World) -> None:
    def broken() -> None:
        raise MachineError("cannot reach machined over the system bus")

    life = Life(host, acts=[broken, broken, nothing])
    life.run()
    assert [event.act for event in host.events if event.stage == "failed"] == ["watch"] * 2
    assert in_step(host)


def test_a_bus_that_breaks_at_once_each_time_is_not_asked_in_a_busy_loop(host: World) -> None:
    def broken_at_once() -> None:
        host.time.now = life.waits[-1][0]
        raise MachineError("cannot reach machined over the system bus")

    life = Life(host, acts=[broken_at_once] * 5)
    life.run()
    begun = [at for at, _ in life.waits]
    assert all(later - earlier >= RETRY_SECONDS for earlier, later in pairwise(begun))


def test_the_watchdog_is_fed_thrice_in_its_time(host: World) -> None:
    life = Life(host, watchdog=6.0, acts=[nothing] * 5)
    life.run()
    pings = sorted({at for at, message in life.told if message == "WATCHDOG=1"})
    assert len(pings) == 6
    assert {later - earlier for earlier, later in pairwise(pings)} == {2.0}


def test_without_a_watchdog_none_is_fed(host: World) -> None:
    life = Life(host, acts=[nothing])
    life.run()
    assert "WATCHDOG=1" not in [message for _, message in life.told]


def test_an_order_that_nobody_is_left_to_finish_is_undone_at_the_start(host: World) -> None:
    for kill_at in itertools.count(5):
        host.disk.changes, host.disk.kill_at = 0, kill_at
        with pytest.raises(Killed):
            switch.upgrade(host.host(), host.candidate("1.1.0"), Options())
        host.disk.kill_at = None
        if record := host.host().record.load():
            break
        # Unpacked in part, and nothing names it.
        assert list(host.layout.root.glob(".hostsync-staging-*"))
        Life(host).run()
        assert not list(host.layout.root.glob(".hostsync*"))
    assert kill_at > 5
    assert record is not None
    assert record.phase in (Phase.STAGING, Phase.SWITCHING)
    Life(host).run()
    assert host.host().record.load() is None
    assert current_version(host) == "1.0.0"
    assert not list(host.layout.root.glob(".hostsync*"))


def test_an_order_under_judgement_is_left_to_its_judge(host: World) -> None:
    switch.upgrade(host.host(), host.candidate("1.1.0"), Options())
    Life(host).run()
    assert host.host().record.load() is not None
    assert current_version(host) == "1.1.0"


def test_a_record_that_cannot_be_read_is_told_and_machines_are_kept_in_step(host: World) -> None:
    state = host.top / "state/hostsync"
    state.mkdir(parents=True, exist_ok=True)
    (state / "record.json").write_bytes(b"{}")
    drift(host)
    Life(host).run()
    assert any(event.act == "settle" and event.stage == "failed" for event in host.events)
    assert in_step(host)
    assert os.listdir(state) == ["record.json"]
