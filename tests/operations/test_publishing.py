"""Publishing: a conflict repeats the write alone, an end stays, another object is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Cluster
from hostsync.operations.operation import Operation
from hostsync.operations.publishing import TRIES, publish
from hostsync.operations.report import Report, succeeded, under_way
from tests.operations.played_cluster import PlayedCluster, raising
from tests.operations.specimens import ME, a_selection, an_operation

NOW = 1_800_000_000.0


@pytest.fixture
def cluster() -> PlayedCluster:
    return PlayedCluster()


def told(cluster: Cluster, operation: Operation, report: Report) -> Operation | None:
    return publish(cluster, operation, report, ME.machine, NOW)


def touched(cluster: PlayedCluster, name: str, **status: object) -> Callable[[], None]:
    """Somebody else writes in between."""

    def act() -> None:
        cluster.put(cluster.at(name), **cluster.status(name) | status)

    return act


def test_a_report_is_written_and_the_operation_returned_as_it_is_then(
    cluster: PlayedCluster,
) -> None:
    stored = told(cluster, cluster.put(an_operation()), succeeded("done"))
    assert stored == cluster.at("op")
    assert (stored.phase, stored.message, stored.version != "7") == ("Complete", "done", True)


def test_a_conflict_repeats_the_write_over_what_is_there_now(cluster: PlayedCluster) -> None:
    ready = {"type": "Ready", "status": "True"}
    operation = cluster.put(an_operation())
    cluster.before["patch"] = [touched(cluster, "op", conditions=[ready])] * 3
    stored = told(cluster, operation, succeeded("done"))
    assert stored is not None
    assert {each.type for each in stored.conditions} == {"Ready", "Completed"}
    assert cluster.log == ["patch op", "get op"] * 3 + ["patch op"]


def test_conflicts_without_end_are_given_up_after_a_few_tries(cluster: PlayedCluster) -> None:
    operation = cluster.put(an_operation())
    cluster.before["patch"] = [touched(cluster, "op", message="x")] * 99
    with pytest.raises(ClusterError) as caught:
        told(cluster, operation, succeeded("done"))
    assert caught.value.cause is ClusterCause.CONFLICT
    assert cluster.count("patch") == TRIES
    assert cluster.at("op").phase == ""


def test_an_end_that_came_in_between_stays(cluster: PlayedCluster) -> None:
    operation = cluster.put(an_operation())
    cluster.before["patch"] = [touched(cluster, "op", phase="Failed", message="by hand")]
    stored = told(cluster, operation, succeeded("done"))
    assert stored is not None
    assert (stored.phase, stored.message) == ("Failed", "by hand")
    assert cluster.at("op") == stored
    assert cluster.count("patch") == 1


@pytest.mark.parametrize("phase", ["Complete", "Failed"])
def test_nothing_is_asked_of_the_cluster_for_an_operation_that_is_over(
    cluster: PlayedCluster, phase: str
) -> None:
    operation = cluster.put(an_operation(), phase=phase)
    assert told(cluster, operation, under_way("x")) == operation
    assert cluster.log == []


def test_what_is_told_already_is_not_written_again(cluster: PlayedCluster) -> None:
    stored = told(cluster, cluster.put(an_operation()), under_way("staging"))
    assert stored is not None
    cluster.log.clear()
    assert told(cluster, stored, under_way("staging")) == stored
    assert cluster.log == []


def test_a_write_whose_answer_was_lost_is_not_written_twice(cluster: PlayedCluster) -> None:
    operation = cluster.put(an_operation())
    told(cluster, operation, under_way("staging"))
    version = cluster.at("op").version
    assert told(cluster, operation, under_way("staging")) == cluster.at("op")
    assert cluster.at("op").version == version


def test_an_operation_that_is_gone_has_nobody_to_tell(cluster: PlayedCluster) -> None:
    assert told(cluster, an_operation(), succeeded("done")) is None
    operation = cluster.put(an_operation())
    cluster.before["patch"] = [raising(ClusterCause.CONFLICT)]
    cluster.before["get"] = [cluster.objects.clear]
    assert told(cluster, operation, succeeded("done")) is None


def test_one_made_anew_under_the_same_name_is_left_alone(cluster: PlayedCluster) -> None:
    operation = cluster.put(an_operation())
    anew = cluster.put(an_operation(uid="another"))
    assert told(cluster, operation, succeeded("done")) is None
    assert cluster.at("op") == anew


def test_trouble_with_the_cluster_is_raised_and_nothing_else_is_tried(
    cluster: PlayedCluster,
) -> None:
    operation = cluster.put(an_operation())
    cluster.before["patch"] = [raising(ClusterCause.UNREACHABLE)]
    with pytest.raises(ClusterError):
        told(cluster, operation, succeeded("done"))
    assert cluster.log == ["patch op"]


def test_of_a_selection_this_machines_entry_alone_is_applied_under_its_own_name(
    cluster: PlayedCluster,
) -> None:
    theirs = {"machineRef": "host-2", "phase": "InProgress", "message": "theirs"}
    operation = cluster.put(a_selection(), targets=[theirs])
    stored = told(cluster, operation, succeeded("done"))
    assert stored is not None
    assert cluster.log == [f"apply op hostsync-{ME.machine}"]
    assert cluster.status("op").keys() == {"targets"}
    assert theirs in cluster.status("op")["targets"]
    mine = stored.target(ME.machine)
    assert mine is not None
    assert (mine.phase, mine.message, stored.phase) == ("Complete", "done", "")


def test_a_selection_made_anew_under_the_same_name_gets_no_entry(cluster: PlayedCluster) -> None:
    operation = cluster.put(a_selection())
    cluster.put(a_selection(uid="another"))
    assert told(cluster, operation, succeeded("done")) is None
    assert cluster.status("op") == {}
