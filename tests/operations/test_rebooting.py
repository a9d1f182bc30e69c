"""NodeReboot: stopped once, forgotten, started, ready and in step; and every way to fail that."""

from __future__ import annotations

from contextlib import suppress

import pytest

from hostsync import lock
from hostsync.errors import Busy, UnitsError
from hostsync.operations.demand import Reboot
from hostsync.operations.rebooting import reboot
from hostsync.operations.reboots import KEPT, Restart, Restarts
from hostsync.ports import UnitVerb
from hostsync.sync import inspect
from tests.hostsync.world import KillableDisk, Killed, World
from tests.operations.played_machine import NAME, NEVER, PlayedMachine, second_machine
from tests.operations.rig import host_of
from tests.operations.specimens import an_operation

STOP, START = UnitVerb.STOP.value, UnitVerb.START.value


@pytest.fixture
def machine(world: World) -> PlayedMachine:
    return PlayedMachine(world)


def journal(world: World) -> Restarts:
    return Restarts(world.top / "state", world.disk)


def act(machine: PlayedMachine, demand: Reboot | None = None) -> list[str]:
    """One life of the daemon carries it out; what was said."""
    said: list[str] = []
    host = host_of(machine.world, machine.play)
    reboot((host,), journal(machine.world), an_operation(), demand or Reboot(), said.append)
    return said


def end(world: World) -> Restart:
    found = journal(world).find("uid-op")
    assert found is not None
    assert found.ended_at is not None
    return found


def test_the_machine_is_stopped_started_awaited_and_in_step(
    machine: PlayedMachine, world: World
) -> None:
    world.inside(NAME, world.layout.current).unlink()
    said = act(machine)
    assert machine.requests == [STOP, START]
    assert (end(world).machine, end(world).trouble) == (NAME, "")
    assert machine.world.time.now - machine.started_at >= machine.ready_after
    host = host_of(world, machine.play)
    (worker,) = host.machines.running()
    assert inspect(host.machines, host.agent, worker, deep=True).in_step
    assert [text.split()[0] for text in said] == ["stopping", "starting", "waiting", "bringing"]


def test_it_is_not_started_while_machined_still_knows_it(
    machine: PlayedMachine, world: World
) -> None:
    machine.forgotten_after = 20
    act(machine)
    assert machine.started_at - machine.stopped_at >= 20
    assert end(world).trouble == ""


def test_machined_that_is_away_for_a_while_leaves_no_machine_stopped(
    machine: PlayedMachine, world: World
) -> None:
    machine.machined_away = 10
    act(machine)
    assert machine.active == "active"
    assert end(world).trouble == ""


def test_a_machine_that_machined_never_forgets_is_started_all_the_same(
    machine: PlayedMachine, world: World
) -> None:
    machine.forgotten_after = NEVER
    act(machine)
    assert machine.active == "active"
    assert end(world).trouble == ""
    assert any("still lists" in event.detail for event in world.events)


def test_a_bus_that_breaks_after_the_stop_leaves_it_to_be_gone_on_with(
    machine: PlayedMachine, world: World
) -> None:
    machine.unreachable_at = UnitVerb.START
    with pytest.raises(UnitsError):
        act(machine)
    assert machine.active == "inactive"
    act(machine)
    assert machine.active == "active"
    assert end(world).trouble == ""


def test_a_degraded_machine_is_ready(machine: PlayedMachine, world: World) -> None:
    machine.says = "degraded"
    act(machine)
    assert end(world).trouble == ""


@pytest.mark.parametrize(
    ("odd", "word"),
    [
        ({"ready_after": NEVER}, "did not become ready"),
        ({"says": "maintenance"}, "did not become ready"),
        ({"listed_after": NEVER}, "did not become ready"),
        ({"start_ends": "failed"}, "'failed'"),
        ({"start_ends": "dependency"}, "'dependency'"),
        ({"load": "not-found"}, "is not run by"),
    ],
)
def test_whatever_fails_is_in_the_journal_with_its_reason_and_not_tried_again(
    machine: PlayedMachine, world: World, odd: dict[str, object], word: str
) -> None:
    for name, value in odd.items():
        setattr(machine, name, value)
    act(machine)
    assert word in end(world).trouble
    before = list(machine.requests)
    act(machine)
    assert machine.requests == before
    assert [event.stage for event in world.events if event.act == "restart"][-1] == "failed"


def test_a_machine_that_cannot_be_brought_in_step_fails_though_it_runs(
    machine: PlayedMachine, world: World
) -> None:
    world.machines.mirror_fails = True
    world.inside(NAME, world.layout.current).unlink()
    act(machine)
    assert "is broken" in end(world).trouble
    assert machine.active == "active"


def test_which_machine_is_meant_has_to_be_clear(machine: PlayedMachine, world: World) -> None:
    second_machine(world)
    act(machine)
    assert machine.requests == []
    assert "kube1, kube2 run" in end(world).trouble
    assert "parameter" in end(world).trouble


def test_the_machine_that_is_named_is_the_one(machine: PlayedMachine, world: World) -> None:
    second_machine(world)
    act(machine, Reboot(machine=NAME))
    assert machine.requests == [STOP, START]
    assert end(world).trouble == ""


def test_without_any_machine_that_runs_there_is_none_to_restart(
    machine: PlayedMachine, world: World
) -> None:
    machine.stop()
    world.time.now += 100
    act(machine)
    assert "none runs" in end(world).trouble
    assert machine.requests == []


def test_one_that_is_named_and_does_not_run_is_started(
    machine: PlayedMachine, world: World
) -> None:
    machine.stop()
    world.time.now += 100
    act(machine, Reboot(machine=NAME))
    assert machine.requests[-1] == START
    assert end(world).trouble == ""


@pytest.mark.parametrize("verb", [UnitVerb.STOP, UnitVerb.START])
@pytest.mark.parametrize("moment", ["dies_before", "dies_after"])
def test_one_that_was_killed_is_gone_on_with_and_nothing_is_done_twice(
    machine: PlayedMachine, world: World, verb: UnitVerb, moment: str
) -> None:
    setattr(machine, moment, verb)
    with pytest.raises(Killed):
        act(machine)
    found = journal(world).find("uid-op")
    assert found is not None
    assert found.ended_at is None
    act(machine)
    assert end(world).trouble == ""
    assert machine.requests.count(START) == 1
    # A stop that is repeated before the start stops nothing that runs.
    assert machine.invocation == "first+"
    done = list(machine.requests)
    act(machine)
    assert machine.requests == done


def test_a_kill_before_any_write_to_the_journal_ends_in_one_restart(
    machine: PlayedMachine, world: World
) -> None:
    for kill_at in range(4):
        world.disk.changes, world.disk.kill_at = 0, kill_at
        with suppress(Killed):
            act(machine)
        world.disk.kill_at = None
    act(machine)
    assert machine.invocation == "first+"
    assert end(world).trouble == ""


def test_one_that_is_killed_while_the_machine_boots_waits_for_it_and_fails_nobody(
    machine: PlayedMachine, world: World
) -> None:
    machine.dies_after = UnitVerb.START
    with pytest.raises(Killed):
        act(machine)
    machine.active = "activating"
    machine.listed_after = 0
    act(machine)
    assert end(world).trouble == ""
    assert machine.requests.count(START) <= 1


def test_a_host_in_use_is_busy_and_nothing_is_begun(machine: PlayedMachine, world: World) -> None:
    with lock.held(world.top / "run", "hostsync upgrade"), pytest.raises(Busy, match="upgrade"):
        act(machine)
    assert journal(world).find("uid-op") is None
    assert machine.requests == []


def a_restart(number: int) -> Restart:
    return Restart(uid=f"u{number}", operation="op", machine="m", before="", started_at=0.0)


def test_the_journal_keeps_so_many_and_replaces_in_its_place(world: World) -> None:
    restarts = journal(world)
    for number in range(KEPT + 5):
        restarts.store(a_restart(number))
    assert len(restarts.all()) == KEPT
    assert restarts.find("u0") is None
    assert restarts.find(f"u{KEPT + 4}") == a_restart(KEPT + 4)
    assert restarts.path.stat().st_mode & 0o777 == 0o600


def test_a_journal_that_is_damaged_is_empty_and_written_anew(world: World) -> None:
    restarts = journal(world)
    KillableDisk().make_directory(restarts.path.parent)
    for damage in (b"", b"{", b"[]", b'{"restarts": 7}', b"\xff\xfe"):
        restarts.path.write_bytes(damage)
        assert restarts.all() == ()
        restarts.store(a_restart(1))
        assert restarts.all() == (a_restart(1),)
