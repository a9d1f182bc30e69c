"""Our client against an API server over TLS: reading, watching, writing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.world.cluster import Cluster as Stub
from e2e.world.conduct import CUT_STREAMS
from e2e.world.documents import Document
from e2e.world.watching import Periods
from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Change, Cluster, Seen
from hostsync.operations.kubernetes import PAGE, KubernetesCluster
from hostsync.operations.operation import Operation
from hostsync.operations.publishing import publish
from hostsync.operations.report import entry_patch, pending, status_patch, succeeded, under_way
from tests.operations.conftest import a_definition
from tests.operations.specimens import CANARY, ME, a_document

NOW = 1_800_000_000.0
MINE = f"spec.machineRef={ME.machine}"


def put(stub: Stub, name: str = "op", **spec: object) -> Operation:
    """Have an operation created, by hand."""
    key = stub.at("machineoperations", name)
    return Operation.parse(stub.registry.create(key, document(name, **spec)))


def document(name: str, **spec: object) -> Document:
    made: Document = json.loads(json.dumps(a_document(name, **spec)))
    return made


def now(stub: Stub, name: str = "op") -> dict[str, Any]:
    found: dict[str, Any] = stub.registry.get(stub.at("machineoperations", name))
    return found


def cause_of(act: Any, *arguments: object) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        act(*arguments)
    assert CANARY not in str(caught.value)
    return caught.value


def watched(kube: Cluster, version: str, count: int, selector: str = "") -> list[Seen]:
    """The next so many events."""
    events = kube.watch(selector, version, 30)
    assert isinstance(events, Iterator)
    with closing(events):  # type: ignore[type-var]
        return [next(events) for _ in range(count)]


def test_our_client_is_a_cluster(kube: KubernetesCluster) -> None:
    cluster: Cluster = kube
    assert cluster.get("none") is None


def test_a_list_beyond_a_page_is_whole_and_of_one_version(
    stub: Stub, kube: KubernetesCluster
) -> None:
    names = {f"op-{number}" for number in range(PAGE + 5)}
    last = [put(stub, name) for name in sorted(names)][-1]
    found, version = kube.list("")
    assert {each.name for each in found} == names
    assert version == last.version
    asked = stub.requests()
    assert [each.query.get("limit") for each in asked] == [str(PAGE)] * 2
    assert "continue" in asked[1].query


def test_a_list_of_its_own_is_this_machines_alone(stub: Stub, kube: KubernetesCluster) -> None:
    put(stub, "mine")
    put(stub, "theirs", machineRef="host-2")
    put(stub, "ours", machineRef="", machineSelector={"matchLabels": {"ring": "1"}})
    assert [each.name for each in kube.list(MINE)[0]] == ["mine"]
    assert [each.name for each in kube.list("spec.machineRef=")[0]] == ["ours"]


def test_an_object_that_cannot_be_read_hides_no_other(stub: Stub, kube: KubernetesCluster) -> None:
    put(stub, "good")
    key = stub.at("machineoperations", "odd")
    stub.registry.store.write(
        key,
        lambda _: {
            "metadata": {"name": "odd", "uid": "u", "resourceVersion": "1"},
            "spec": {"operationKind": 7},
        },
    )
    assert [each.name for each in kube.list("")[0]] == ["good"]


def test_a_watch_tells_of_everything_after_the_list(stub: Stub, kube: KubernetesCluster) -> None:
    put(stub, "before")
    _, version = kube.list(MINE)
    put(stub, "new", parameters={"note": "a\u2028b\u0085c\r\nd"})
    put(stub, "theirs", machineRef="host-2")
    stub.registry.delete(stub.at("machineoperations", "before"))
    first, second = watched(kube, version, 2, MINE)
    assert (first.change, first.operation and first.operation.name) == (Change.PUT, "new")
    assert first.operation is not None
    assert first.operation.parameters == {"note": "a\u2028b\u0085c\r\nd"}
    assert (second.change, second.operation and second.operation.name) == (Change.GONE, "before")
    assert int(second.version) > int(first.version)


def test_one_that_leaves_the_scope_is_gone_from_it(stub: Stub, kube: KubernetesCluster) -> None:
    version = put(stub).version
    key = stub.at("machineoperations", "op")
    stub.registry.change(key, lambda held: held | {"spec": document("op", machineRef="x")["spec"]})
    (seen,) = watched(kube, version, 1, MINE)
    assert seen.change is Change.GONE


def test_bookmarks_are_asked_for_and_carry_the_version_on(tmp_path: Path) -> None:
    with Stub(tmp_path / "quick", periods=Periods(bookmark=0.02)) as stub:
        stub.define(a_definition())
        kube = KubernetesCluster(stub.kubeconfig, None)
        version = put(stub, "theirs", machineRef="host-2").version
        _, listed = kube.list(MINE)
        (seen,) = watched(kube, listed, 1, MINE)
        kube.close()
    assert (seen.change, seen.operation) == (Change.MARK, None)
    assert int(seen.version) >= int(version)


@pytest.mark.slow
def test_a_watch_ends_when_its_time_is_over(stub: Stub, kube: KubernetesCluster) -> None:
    _, version = kube.list("")
    changes = [seen.change for seen in kube.watch("", version, 1)]
    assert set(changes) <= {Change.MARK}
    assert stub.requests()[-1].query["timeoutSeconds"] == "1"


def test_a_version_that_is_forgotten_is_expired(stub: Stub, kube: KubernetesCluster) -> None:
    _, version = kube.list("")
    put(stub)
    stub.stop()
    stub.start()
    assert cause_of(list, kube.watch("", version, 5)).cause is ClusterCause.EXPIRED


def test_a_watch_that_is_cut_in_the_middle_is_unreachable(
    stub: Stub, kube: KubernetesCluster
) -> None:
    _, version = kube.list("")
    stub.tell(CUT_STREAMS)
    put(stub)
    assert cause_of(list, kube.watch("", version, 5)).cause is ClusterCause.UNREACHABLE


def test_a_kind_that_is_not_defined_is_told_apart_from_an_object_that_is_not_there(
    tmp_path: Path,
) -> None:
    with Stub(tmp_path / "bare") as stub:
        kube = KubernetesCluster(stub.kubeconfig, None)
        assert cause_of(kube.list, "").cause is ClusterCause.NO_KIND
        assert cause_of(list, kube.watch("", "1", 5)).cause is ClusterCause.NO_KIND
        assert cause_of(kube.get, "op").cause is ClusterCause.NO_KIND
        stub.define(a_definition())
        assert kube.list("")[0] == ()
        assert kube.get("op") is None
        kube.close()


def test_a_field_that_cannot_be_selected_by_is_told(tmp_path: Path) -> None:
    old: Any = a_definition()
    del old["spec"]["versions"][0]["selectableFields"]
    with Stub(tmp_path / "old") as stub:
        stub.define(old)
        kube = KubernetesCluster(stub.kubeconfig, None)
        assert cause_of(kube.list, MINE).cause is ClusterCause.NO_FIELD
        assert cause_of(list, kube.watch(MINE, "1", 5)).cause is ClusterCause.NO_FIELD
        assert kube.list("")[0] == ()
        kube.close()


def test_a_status_is_merged_and_the_spec_is_left(stub: Stub, kube: KubernetesCluster) -> None:
    operation = put(stub)
    stored = kube.patch_status("op", status_patch(operation, succeeded("done"), NOW))
    assert (stored.phase, stored.message) == ("Complete", "done")
    assert stored == kube.get("op")
    assert now(stub)["spec"] == document("op")["spec"]
    assert stored.generation == operation.generation


def test_a_status_patch_for_what_has_changed_or_was_made_anew_is_a_conflict(
    stub: Stub, kube: KubernetesCluster
) -> None:
    operation = put(stub)
    kube.patch_status("op", status_patch(operation, pending("waits"), NOW))
    patch = status_patch(operation, succeeded("done"), NOW)
    assert cause_of(kube.patch_status, "op", patch).cause is ClusterCause.CONFLICT
    stub.registry.delete(stub.at("machineoperations", "op"))
    assert cause_of(kube.patch_status, "op", patch).cause is ClusterCause.GONE
    put(stub)
    assert cause_of(kube.patch_status, "op", patch).cause is ClusterCause.CONFLICT
    assert "phase" not in now(stub).get("status", {})


def test_a_status_that_the_definition_refuses_is_rejected(
    stub: Stub, kube: KubernetesCluster
) -> None:
    put(stub)
    error = cause_of(kube.patch_status, "op", {"status": {"phase": "Dancing"}})
    assert error.cause is ClusterCause.REJECTED
    assert "phase" in str(error)


def test_two_machines_apply_their_entries_without_touching_each_others(
    stub: Stub, kube: KubernetesCluster
) -> None:
    operation: Operation | None = put(stub, machineRef="", machineSelector={})
    for machine, text in (("a", "one"), ("b", "two"), ("a", "three")):
        assert operation is not None
        kube.apply_status(
            "op", f"hostsync-{machine}", entry_patch(operation, under_way(text), machine, NOW)
        )
        operation = kube.get("op")
    status = now(stub)["status"]
    assert status.keys() == {"targets"}
    assert {each["machineRef"]: each["message"] for each in status["targets"]} == {
        "a": "three", "b": "two",
    }  # fmt: skip


def test_entries_written_at_the_same_time_are_all_kept(stub: Stub, kube: KubernetesCluster) -> None:
    operation = put(stub, machineRef="", machineSelector={})
    machines = [f"m{number}" for number in range(4)]

    def write(machine: str) -> None:
        publish(kube, operation, pending("waits"), machine, NOW)

    threads = [threading.Thread(target=write, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each["machineRef"] for each in now(stub)["status"]["targets"]) == machines


def test_an_entry_is_never_applied_to_one_made_anew_or_gone(
    stub: Stub, kube: KubernetesCluster
) -> None:
    entry = entry_patch(put(stub, machineRef="", machineSelector={}), pending("x"), "a", NOW)
    stub.registry.delete(stub.at("machineoperations", "op"))
    assert cause_of(kube.apply_status, "op", "hostsync-a", entry).cause is ClusterCause.GONE
    assert stub.listed("machineoperations") == {}
    put(stub, machineRef="", machineSelector={})
    assert cause_of(kube.apply_status, "op", "hostsync-a", entry).cause is ClusterCause.CONFLICT
    assert not now(stub).get("status")


def test_exactly_the_object_that_was_seen_is_deleted(stub: Stub, kube: KubernetesCluster) -> None:
    operation = put(stub)
    stored = kube.patch_status("op", status_patch(operation, succeeded("done"), NOW))
    assert cause_of(kube.delete, operation).cause is ClusterCause.CONFLICT
    kube.delete(stored)
    assert stub.listed("machineoperations") == {}
    assert cause_of(kube.delete, stored).cause is ClusterCause.GONE
    put(stub)
    assert cause_of(kube.delete, stored).cause is ClusterCause.CONFLICT
    assert stub.listed("machineoperations").keys() == {"op"}


def test_the_labels_of_a_node_are_read_and_of_none_there_are_none(
    stub: Stub, kube: KubernetesCluster
) -> None:
    stub.registry.create(
        stub.at("nodes", "node-1"),
        {"metadata": {"name": "node-1", "labels": {"ring": "1"}}},
    )
    assert kube.node_labels("node-1") == {"ring": "1"}
    assert kube.node_labels("node-2") == {}
