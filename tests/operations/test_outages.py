"""Whatever happens to the API, its objects or the daemon: no work twice, no verdict lost."""

from __future__ import annotations

import pytest

from e2e.world.cluster import Cluster as Stub
from e2e.world.conduct import EVERY_OTHER_WRITE_CONFLICTS, Conduct
from hostsync.operations.desk import RETRY_SECONDS
from tests.hostsync.test_transaction import current_version
from tests.hostsync.world import Killed, World
from tests.operations.rig import Daemon, Depot, Rig, killed_once_recorded
from tests.operations.specimens import ME

pytestmark = pytest.mark.slow


def test_the_api_being_away_from_the_switch_to_after_the_verdict_changes_no_verdict(
    rig: Rig, stub: Stub, world: World, depot: Depot
) -> None:
    rig.order(parameters=depot.parameters("1.1.0"))
    rig.see()
    rig.look()
    stub.stop()
    rig.work()
    rig.look()
    assert rig.pauses[-1] is not None
    rig.judge()
    for _ in range(3):
        rig.look()
        assert 0 < (rig.pauses[-1] or 0) <= 60
    assert current_version(world) == "1.1.0"
    stub.start()
    rig.round()
    assert (rig.phase(), rig.reason()) == ("Complete", "Succeeded")
    assert "startedAt" in rig.status()


def test_an_operation_deleted_while_it_runs_is_carried_to_its_end_and_told_to_nobody(
    rig: Rig, stub: Stub, world: World, depot: Depot
) -> None:
    uid = rig.order(parameters=depot.parameters("1.1.0"))["metadata"]
    rig.round()
    stub.registry.delete(stub.at("machineoperations", "op"))
    rig.look()
    rig.judge()
    assert rig.round() == 0
    assert stub.listed("machineoperations") == {}
    (line,) = [line for line in rig.host.state.history() if line.source.name == "op"]
    assert isinstance(uid, dict)
    assert (line.source.uid, line.outcome) == (uid["uid"], "complete")
    assert current_version(world) == "1.1.0"


@pytest.mark.parametrize("seen", [True, False])
def test_one_made_anew_under_the_same_name_gets_a_verdict_of_its_own(
    rig: Rig, stub: Stub, world: World, depot: Depot, seen: bool
) -> None:
    rig.order(parameters=depot.parameters("1.1.0"))
    rig.round()
    stub.registry.delete(stub.at("machineoperations", "op"))
    rig.order(parameters=depot.parameters("1.2.0"))
    if seen:
        rig.see()
        rig.look()
        assert rig.phase() == "Pending"
        assert "comes first" in rig.status()["message"]
    rig.judge()
    rig.look()
    assert rig.phase() in {"", "Pending", "InProgress"}
    rig.round()
    rig.judge()
    rig.round()
    assert (rig.phase(), rig.reason()) == ("Failed", "DaemonFailed")
    assert current_version(world) == "1.1.0"


def test_a_restarted_daemon_begins_nothing_twice_and_publishes_the_verdict(
    daemon: Daemon, depot: Depot
) -> None:
    first = daemon()
    first.order(parameters=depot.parameters("1.1.0"))
    first.round()
    for _ in range(2):
        assert daemon().round() == 0
    first.judge()
    last = daemon()
    assert last.round() == 0
    assert (last.phase(), last.reason()) == ("Complete", "Succeeded")
    assert daemon().round() == 0
    assert depot.asked("1.1.0") == 1


def test_conflicts_on_every_other_write_repeat_no_work(
    rig: Rig, stub: Stub, depot: Depot, world: World
) -> None:
    stub.tell(EVERY_OTHER_WRITE_CONFLICTS)
    rig.order(parameters=depot.parameters("1.1.0"))
    rig.round()
    rig.judge()
    rig.round()
    assert (rig.phase(), rig.reason()) == ("Complete", "Succeeded")
    assert depot.asked("1.1.0") == 1
    assert any(each.status == 409 for each in stub.requests())
    assert sum(line.source.name == "op" for line in rig.host.state.history()) == 1


def test_a_record_that_cannot_be_read_holds_operations_back_and_says_so(
    rig: Rig, world: World, depot: Depot
) -> None:
    path = rig.host.record.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    rig.order(parameters=depot.parameters("1.1.0"))
    assert rig.round() == 0
    assert rig.phase() == "Pending"
    assert str(path) in rig.status()["message"]
    path.unlink()
    assert rig.round() == 1


def test_one_that_is_cut_off_three_times_before_its_switch_fails(
    daemon: Daemon, world: World, depot: Depot
) -> None:
    daemon().order(parameters=depot.parameters("1.1.0"))
    for _ in range(3):
        rig = daemon()
        rig.see()
        rig.look()
        with killed_once_recorded(world), pytest.raises(Killed):
            rig.work()
        assert rig.host.record.load() is not None
        rig.judge()
    last = daemon()
    assert last.round() == 0
    assert (last.phase(), last.reason()) == ("Failed", "ExecutionFailed")
    assert "interrupted" in last.status()["message"]
    assert current_version(world) == "1.0.0"


def test_an_object_whose_status_cannot_be_written_holds_up_no_other(
    rig: Rig, stub: Stub, world: World, depot: Depot
) -> None:
    rig.order("a-poisoned", operationKind="HostReboot")
    rig.order("b", parameters=depot.parameters("1.1.0"))
    path = "/apis/unbounded-cloud.io/v1alpha3/machineoperations/a-poisoned"
    stub.tell(Conduct(status=422, methods=("PATCH",), only=path, body="{}"))
    rig.round()
    assert rig.phase("b") == "InProgress"
    rig.judge()
    rig.round()
    assert rig.phase("b") == "Complete"
    assert rig.pauses[-1] is not None
    stub.tell()
    rig.round()
    assert rig.phase("a-poisoned") == "Failed"


def test_a_verb_that_is_forbidden_stops_what_needs_it_and_nothing_else(
    rig: Rig, stub: Stub, world: World
) -> None:
    rig.order("a", operationKind="HostReboot", ttlSecondsAfterFinished=1)
    rig.round()
    world.time.now += 5
    rig.order("b", operationKind="HostReboot")
    stub.tell(Conduct(status=403, methods=("DELETE",), body="{}"))
    rig.round()
    assert (rig.phase("a"), rig.phase("b")) == ("Failed", "Failed")


def test_labels_that_cannot_be_read_hold_up_selections_alone(
    rig: Rig, stub: Stub, world: World
) -> None:
    node = stub.at("nodes", ME.node)
    stub.registry.create(node, {"metadata": {"name": ME.node, "labels": {"ring": "1"}}})
    ring = {"matchLabels": {"ring": "1"}}
    rig.order("a", machineRef="", machineSelector=ring, operationKind="HostReboot")
    rig.order("b", operationKind="HostReboot")
    stub.tell(Conduct(status=403, only="/api/v1/nodes", body="{}"))
    rig.round()
    assert (rig.status("a"), rig.phase("b")) == ({}, "Failed")
    assert rig.pauses[-1] == pytest.approx(RETRY_SECONDS)
    assert [event.act for event in world.events].count("read") == 1
    stub.tell()
    world.time.now += RETRY_SECONDS
    rig.round()
    assert rig.status("a")["targets"][0]["phase"] == "Failed"
