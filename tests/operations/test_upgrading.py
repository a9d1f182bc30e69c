"""AgentUpgrade on a played host: however it ends before the switch, the history has its uid."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hostsync import lock
from hostsync.activation.trial import settle
from hostsync.errors import Busy, DiskError
from hostsync.model import SlotKind
from hostsync.operations.demand import Upgrade, demand_of
from hostsync.operations.operation import Operation
from hostsync.operations.upgrading import upgrade
from hostsync.record import Phase, SourceKind
from hostsync.state import HistoryLine, Outcome
from tests.hostsync.release.web_server import answer, whole
from tests.hostsync.test_transaction import current_version
from tests.hostsync.world import KillableDisk, World, installed, make_world
from tests.operations.rig import Depot, host_of
from tests.operations.specimens import CANARY, an_operation


def act(world: World, operation: Operation) -> list[str]:
    """Carry it out; what was said on the way."""
    host, said = host_of(world), list[str]()
    demand = demand_of(operation, host.config)
    assert isinstance(demand, Upgrade)
    upgrade((host,), host, operation, demand, said.append)
    return said


def ends(world: World) -> list[HistoryLine]:
    return [line for line in world.host().state.history() if line.source.uid == "uid-op"]


def test_it_ends_in_the_judges_hands_with_the_operation_on_record(
    world: World, depot: Depot
) -> None:
    said = act(world, an_operation(parameters=depot.parameters("1.1.0")))
    record = world.host().record.load()
    assert record is not None
    assert (record.phase, record.source.kind) == (Phase.SWITCHED, SourceKind.OPERATION)
    assert (record.source.name, record.source.uid) == ("op", "uid-op")
    assert ends(world) == []
    settle(world.host())
    assert [line.outcome for line in ends(world)] == [Outcome.COMPLETE]
    assert said[0].startswith("fetching the release")
    assert CANARY not in "".join(said)


def test_what_is_in_use_already_is_complete_and_switches_nothing(
    world: World, depot: Depot
) -> None:
    operation = an_operation(parameters=depot.parameters("1.1.0"))
    act(world, an_operation("first", parameters=depot.parameters("1.1.0")))
    settle(world.host())
    act(world, operation)
    assert world.host().record.load() is None
    (line,) = ends(world)
    assert line.outcome is Outcome.COMPLETE
    assert line.reason


@pytest.mark.parametrize(
    ("body", "word"), [(b"not what was ordered", "SHA-256"), (b"", "SHA-256"), (None, "404")]
)
def test_what_is_refused_before_a_record_is_in_the_history_with_its_uid(
    world: World, depot: Depot, body: bytes | None, word: str
) -> None:
    reply = answer(status=404, body=CANARY.encode()) if body is None else answer(body=body)
    depot.servers["1.1.0"].answers = [reply]
    act(world, an_operation(parameters=depot.parameters("1.1.0")))
    (line,) = ends(world)
    assert line.outcome is Outcome.FAILED
    assert word in line.reason
    assert CANARY not in line.reason
    assert world.host().record.load() is None
    assert current_version(world) == "1.0.0"


def test_one_that_fails_with_a_record_has_one_end(world: World, depot: Depot) -> None:
    world.machines.mirror_fails = True
    act(world, an_operation(parameters=depot.parameters("1.1.0")))
    (line,) = ends(world)
    assert line.outcome is Outcome.FAILED
    assert "is broken" in line.reason


def test_a_host_in_use_is_busy_and_nothing_is_fetched(world: World, depot: Depot) -> None:
    operation = an_operation(parameters=depot.parameters("1.1.0"))
    with (
        lock.held(world.top / "run", "hostsync sync"),
        pytest.raises(Busy, match="hostsync sync"),
    ):
        act(world, operation)
    act(world, an_operation("first", parameters=depot.parameters("1.2.0")))
    with pytest.raises(Busy, match="in flight"):
        act(world, operation)
    assert depot.asked("1.1.0") == 0
    assert ends(world) == []


def test_a_host_that_came_into_use_during_the_download_is_busy_and_left_as_it_is(
    world: World, depot: Depot
) -> None:
    host = host_of(world)
    operation = an_operation(parameters=depot.parameters("1.1.0"))
    demand = demand_of(operation, host.config)
    assert isinstance(demand, Upgrade)
    holder = lock.held(world.top / "run", "hostsync sync")
    taken: list[str] = []

    def say(text: str) -> None:
        if not taken:
            holder.__enter__()
        taken.append(text)

    with pytest.raises(Busy):
        upgrade((host,), host, operation, demand, say)
    holder.__exit__(None, None, None)
    assert ends(world) == []
    assert current_version(world) == "1.0.0"


def test_progress_is_said_in_steps_of_ten_percent(world: World, depot: Depot) -> None:
    body = b"x" * (3 << 20)
    depot.servers["1.1.0"].answers = [whole(body)]
    said = act(world, an_operation(parameters=depot.parameters("1.1.0")))
    steps = [text for text in said if text.startswith("fetching")]
    assert len(steps) <= 11
    assert len(set(steps)) == len(steps)
    assert steps[-1].endswith("100 %")


@dataclass(slots=True)
class FullDisk(KillableDisk):
    """A disk that is full from its n-th change on, for a while."""

    full_at: int = 1 << 30
    full_for: int = 1 << 30
    seen: int = field(default=0)

    def __post_init__(self) -> None:
        KillableDisk.__init__(self)

    def count(self, verb: str, path: Path) -> None:
        self.seen += 1
        if self.full_at <= self.seen < self.full_at + self.full_for:
            raise DiskError(f"cannot {verb} {path}: No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize("full_for", [1, 3])
def test_a_full_disk_never_has_an_operation_called_failed_while_its_order_is_in_hand(
    tmp_path: Path, full_for: int, depot: Depot
) -> None:
    for full_at in (1, 3, 6, 10, 15, 20):
        world = installed(make_world(tmp_path / f"{full_at}", SlotKind.BUNDLE))
        disk = world.disk = FullDisk(full_at=full_at, full_for=full_for)
        world.machines.count = lambda verb, path: None
        try:
            act(world, an_operation(parameters=depot.parameters("1.1.0")))
        except DiskError:
            assert ends(world) == []
        disk.full_at = 1 << 30
        if world.host().record.load() is not None:
            assert ends(world) == []
            settle(world.host())
        outcomes = [line.outcome for line in ends(world)]
        assert len(outcomes) <= 1
        good = outcomes == [Outcome.COMPLETE]
        assert current_version(world) == ("1.1.0" if good else "1.0.0")
