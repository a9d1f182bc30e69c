"""From order to published verdict: a played host, the real client, and the stub of the API."""

from __future__ import annotations

import threading

import pytest

from e2e.world.cluster import Cluster as Stub
from e2e.world.documents import Document
from e2e.world.rules import Origin
from hostsync import lock
from hostsync.operations.desk import LOOK_SECONDS, RETRY_SECONDS
from tests.hostsync.release.web_server import answer
from tests.hostsync.test_transaction import current_version
from tests.hostsync.world import World
from tests.operations.rig import Depot, Rig
from tests.operations.specimens import CANARY, DIGEST, ME

pytestmark = pytest.mark.slow

STATUS = Origin(now="2026-11-30T12:00:00Z", subresource="status")


def test_an_order_goes_from_pending_to_its_published_verdict(
    rig: Rig, world: World, depot: Depot
) -> None:
    rig.order(parameters=depot.parameters("1.1.0"))
    rig.see()
    rig.look()
    rig.look()
    assert (rig.phase(), rig.status()["message"]) == ("InProgress", "begun")
    started = rig.status()["startedAt"]
    rig.round()
    assert rig.phase() == "InProgress"
    assert "switched" in rig.status()["message"]
    assert rig.pauses[-1:] == [LOOK_SECONDS]
    assert current_version(world) == "1.1.0"
    rig.judge()
    rig.look()
    assert (rig.phase(), rig.reason()) == ("Complete", "Succeeded")
    assert rig.status()["startedAt"] == started
    assert str(rig.status()["completedAt"]) > started
    assert rig.pauses[-1:] == [None]
    assert [event.act for event in world.events if event.act == "publish"] == ["publish"]


def test_every_step_before_the_switch_is_told(rig: Rig, depot: Depot) -> None:
    rig.order(parameters=depot.parameters("1.1.0"))
    rig.see()
    rig.look()
    told: list[str] = []
    nudge = rig.carrier._nudge

    def tell() -> None:
        nudge()
        rig.look()
        if (message := rig.status()["message"]) not in told:
            told.append(message)

    rig.carrier._nudge = tell
    rig.work()
    assert any("fetching" in message and "100 %" in message for message in told)
    assert any("staging" in message for message in told)
    assert any("verifying" in message for message in told)


def test_a_release_that_fails_ends_as_daemon_failed_with_the_old_one_restored(
    rig: Rig, world: World, depot: Depot
) -> None:
    rig.order(parameters=depot.parameters("1.2.0"))
    rig.round()
    rig.judge()
    rig.look()
    assert (rig.phase(), rig.reason()) == ("Failed", "DaemonFailed")
    assert "1.0.0 was restored" in rig.status()["message"]
    assert current_version(world) == "1.0.0"


def test_a_release_known_as_bad_is_refused_until_that_is_allowed(
    rig: Rig, world: World, depot: Depot
) -> None:
    for name, more in (("op", {}), ("again", {}), ("forced", {"allowKnownBad": "true"})):
        rig.order(name, parameters=depot.parameters("1.2.0", **more))
        rig.round()
        rig.judge()
        rig.look()
    assert [rig.reason(name) for name in ("op", "again", "forced")] == [
        "DaemonFailed", "ExecutionFailed", "DaemonFailed",
    ]  # fmt: skip
    assert "nothing was switched" in rig.status("again")["message"]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({}, "InvalidParameters"),
        ({"sha256": DIGEST}, "ExecutionFailed"),
        ({"downloadURL": "http://example.com/x"}, "InvalidParameters"),
        ({"agent": "nobody"}, "InvalidParameters"),
    ],
)
def test_what_cannot_be_done_fails_with_its_reason_and_nothing_is_switched(
    rig: Rig, world: World, depot: Depot, parameters: dict[str, str], reason: str
) -> None:
    wanted = depot.parameters("1.1.0") | parameters if parameters else {}
    rig.order(parameters=wanted)
    rig.round()
    assert (rig.phase(), rig.reason()) == ("Failed", reason)
    assert rig.host.record.load() is None
    assert current_version(world) == "1.0.0"
    assert rig.round() == 0


def test_a_kind_that_is_not_carried_out_fails_as_unsupported(rig: Rig, world: World) -> None:
    rig.order(operationKind="HostReplace")
    assert rig.round() == 0
    assert (rig.phase(), rig.reason()) == ("Failed", "UnsupportedOperation")


def test_a_second_operation_waits_with_a_reason_and_is_then_begun(
    rig: Rig, world: World, depot: Depot
) -> None:
    rig.order("a", parameters=depot.parameters("1.1.0"))
    rig.order("b", parameters=depot.parameters("1.2.0"))
    rig.round()
    assert (rig.phase("a"), rig.phase("b")) == ("InProgress", "Pending")
    assert "comes first" in rig.status("b")["message"]
    assert "startedAt" not in rig.status("b")
    rig.judge()
    rig.round()
    rig.judge()
    rig.round()
    assert (rig.phase("a"), rig.phase("b")) == ("Complete", "Failed")
    assert current_version(world) == "1.1.0"


def test_a_busy_host_leaves_an_operation_pending_with_the_reason_and_tries_again(
    rig: Rig, world: World, depot: Depot
) -> None:
    rig.order(parameters=depot.parameters("1.1.0"))
    with lock.held(rig.host.config.run_root, "hostsync upgrade by hand"):
        assert rig.round() == 1
        assert rig.phase() == "Pending"
        assert "hostsync upgrade by hand" in rig.status()["message"]
        assert rig.round() == 0
        assert rig.pauses[-1] == RETRY_SECONDS
        world.time.now += RETRY_SECONDS
        assert rig.round() == 1
    assert depot.asked("1.1.0") == 0
    world.time.now += RETRY_SECONDS
    rig.round()
    rig.judge()
    rig.look()
    assert rig.phase() == "Complete"


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0", "gone"])
def test_a_secret_in_the_url_is_in_no_status_event_history_or_record(
    rig: Rig, stub: Stub, world: World, depot: Depot, version: str
) -> None:
    if version == "gone":
        depot.servers["1.1.0"].answers = [answer(status=404, body=CANARY.encode())]
    rig.order(parameters=depot.parameters("1.1.0" if version == "gone" else version))
    rig.round()
    said = [str(rig.status())]
    state = world.top / "state"
    said += [path.read_text() for path in state.rglob("*") if path.is_file()]
    rig.judge()
    rig.round()
    assert rig.phase() in ("Complete", "Failed")
    said += [str(rig.status()), *map(str, world.events)]
    said += [path.read_text() for path in state.rglob("*") if path.is_file()]
    said += [path.read_text() for path in (world.top / "run").rglob("*") if path.is_file()]
    assert len(said) > 5
    assert [text for text in said if CANARY in text] == []


def test_an_operation_is_deleted_its_time_after_its_end_and_not_before(
    rig: Rig, stub: Stub, world: World
) -> None:
    rig.order("kept", operationKind="HostReboot")
    rig.order("brief", operationKind="HostReboot", ttlSecondsAfterFinished=30)
    rig.order("theirs", machineRef="host-2", ttlSecondsAfterFinished=0)
    rig.round()
    assert rig.pauses[-1] == pytest.approx(30, abs=1)
    world.time.now += 28
    rig.round()
    assert stub.listed("machineoperations").keys() == {"kept", "brief", "theirs"}
    world.time.now += 3
    rig.round()
    assert stub.listed("machineoperations").keys() == {"kept", "theirs"}
    rig.look()
    assert rig.pauses[-1] is None


def test_an_end_in_a_time_that_nobody_lives_to_see_is_waited_for_all_the_same(
    rig: Rig, stub: Stub, world: World
) -> None:
    rig.order(ttlSecondsAfterFinished=1)
    status: Document = {"phase": "Complete", "completedAt": "9999-12-31T23:59:59Z"}
    told: Document = {"status": status}
    stub.registry.change(stub.at("machineoperations", "op"), lambda held: held | told, STATUS)
    rig.round()
    rig.board.wait(0)
    waiting = threading.Thread(target=rig.board.wait, args=(rig.pauses[-1],))
    waiting.start()
    rig.board.nudge()
    waiting.join(10)
    assert not waiting.is_alive()
    assert rig.phase() == "Complete"


def test_one_made_anew_in_the_place_of_one_that_is_to_be_deleted_stays(
    rig: Rig, stub: Stub, world: World
) -> None:
    rig.order(operationKind="HostReboot", ttlSecondsAfterFinished=1)
    rig.round()
    world.time.now += 5
    stub.registry.delete(stub.at("machineoperations", "op"))
    rig.order(operationKind="HostReplace")
    rig.look()
    assert stub.listed("machineoperations").keys() == {"op"}


def test_of_a_selection_each_machine_writes_its_entry_and_nothing_else(
    rig: Rig, stub: Stub, world: World, depot: Depot
) -> None:
    stub.registry.create(
        stub.at("nodes", ME.node), {"metadata": {"name": ME.node, "labels": {"ring": "1"}}}
    )
    ring = {"matchLabels": {"ring": "1"}}
    wanted = depot.parameters("1.1.0")
    rig.order("many", machineRef="", machineSelector=ring, parameters=wanted)
    rig.order("others", machineRef="", machineSelector={"matchLabels": {"ring": "2"}})
    rig.round()
    (entry,) = rig.status("many")["targets"]
    assert (entry["machineRef"], entry["phase"]) == (ME.machine, "InProgress")
    rig.judge()
    rig.round()
    (entry,) = rig.status("many")["targets"]
    assert entry["phase"] == "Complete"
    assert list(rig.status("many")) == ["targets"]
    assert entry["startedAt"] <= entry["completedAt"]
    assert rig.status("others") == {}
    assert rig.round() == 0
