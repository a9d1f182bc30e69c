"""Killed before any change of the disk, a host ends old or new, never between, and always ends."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostsync import slots
from hostsync.activation import switch
from hostsync.activation.orders import settle_all
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.errors import Busy
from hostsync.model import SlotKind, SlotName
from hostsync.record import Phase
from hostsync.sync import host_listing, inspect
from tests.hostsync.intake import archive_of, put
from tests.hostsync.moments import Moment, moments
from tests.hostsync.test_transaction import current_version, lasting
from tests.hostsync.world import World, installed, make_world

Recovery = Callable[[World], None]


def by_the_next_verb(world: World) -> None:
    """Whoever comes next settles the record, or finds the judge in charge."""
    try:
        settle_all([world.host()])
    except Busy:
        settle(world.host())


def by_a_reboot(world: World) -> None:
    """Power was lost: the service boots from `current`, then the judge's unit runs."""
    world.reboot()
    settle(world.host())
    settle_all([world.host()])


@dataclass(frozen=True, slots=True)
class Offer:
    """A candidate that behaves so, as an archive or as what its archive holds."""

    behaviour: str
    is_packed: bool

    def made(self, world: World) -> Path:
        if self.is_packed:
            archive = archive_of(world, "1.2.0", self.behaviour)
            return put(world.top / "candidates/offered.tar.gz", archive)
        return world.candidate("1.2.0", self.behaviour)


OFFERS = [Offer("good", True), Offer("good", False), Offer("crash", True)]


def begin(top: Path, kind: SlotKind, offer: Offer) -> tuple[World, Path]:
    """A host that runs 1.1.0 and has 1.0.0 to fall back on, and a candidate."""
    world = installed(make_world(top, kind))
    switch.upgrade(world.host(), world.candidate("1.1.0"), Options())
    settle(world.host())
    world.systemd.judge_runs = False  # The judge of 1.1.0 is done.
    shutil.rmtree(world.top / "candidates")
    return world, offer.made(world)


def order_and_judge(world: World, candidate: Path, kept: Path) -> list[Moment]:
    """Order and judge to the end; the host as it was before each change on the way."""
    world.disk.changes = 0
    found = moments(world, kept)
    switch.upgrade(world.host(), candidate, Options())
    assert_selected(world)
    settle(world.host())
    assert len(found) == world.disk.changes
    return found


def assert_selected(world: World) -> None:
    """I1: `current` leads to a sealed, intact, executable release."""
    target = world.layout.current.resolve()
    assert slots.runnable(world.layout, target)
    assert slots.intact(world.layout, target)


@pytest.mark.slow
@pytest.mark.parametrize("offer", OFFERS, ids=str)
@pytest.mark.parametrize("recovery", [by_the_next_verb, by_a_reboot])
@pytest.mark.parametrize("kind", list(SlotKind), ids=str)
def test_a_kill_before_any_change_ends_in_the_old_or_the_new_release(
    tmp_path: Path, kind: SlotKind, recovery: Recovery, offer: Offer
) -> None:
    world, candidate = begin(tmp_path / "host", kind, offer)
    old = lasting(world)
    killed = order_and_judge(world, candidate, tmp_path / "kept")
    new = lasting(world)
    assert len(killed) > 30
    for kill_at, moment in enumerate(killed):
        world = moment.again()
        assert_selected(world)
        phase = record_phase(world)
        recovery(world)
        assert_selected(world)
        assert world.host().record.load() is None, world.disk.log[-1]
        assert lasting(world) in (old, new), (kill_at, phase, world.disk.log[-1])
        assert_in_step(world)


def record_phase(world: World) -> Phase | None:
    record = world.host().record.load()
    return None if record is None else record.phase


def assert_in_step(world: World) -> None:
    host = world.host()
    (worker,) = host.machines.running()
    report = inspect(host.machines, host.agent, worker, deep=True)
    assert report.in_step, report
    assert report.release == current_version(world)
    assert set(host_listing(world.layout).entries) <= {
        world.layout.slot(name).name for name in SlotName
    }
    running = world.systemd.process
    assert running is not None
    assert running.program == world.layout.program(world.layout.current).resolve()
