"""What an API server, or whatever is before it, refuses or makes no sense of."""

from __future__ import annotations

import json

import pytest

from e2e.world.cluster import Cluster as Stub
from e2e.world.conduct import Conduct, overloaded
from hostsync.errors import ClusterCause
from hostsync.operations.kubernetes import KubernetesCluster
from tests.operations.conftest import Connect
from tests.operations.specimens import CANARY, ME
from tests.operations.test_kubernetes import cause_of

NOW = 1_800_000_000.0
MINE = f"spec.machineRef={ME.machine}"


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_wants_to_be_left_alone_is_unreachable_and_says_for_how_long(
    stub: Stub, kube: KubernetesCluster, status: int
) -> None:
    stub.tell(overloaded(status, 7))
    for act in (lambda: kube.list(""), lambda: list(kube.watch("", "1", 5)), lambda: kube.get("x")):
        error = cause_of(act)
        assert (error.cause, error.wait) == (ClusterCause.UNREACHABLE, 7)


@pytest.mark.parametrize("value", ["soon", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "9" * 30, ""])
def test_a_pause_that_is_none_is_none(stub: Stub, kube: KubernetesCluster, value: str) -> None:
    stub.tell(Conduct(status=503, headers={"Retry-After": value}, body="x"))
    assert cause_of(kube.list, "").wait == 0


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (302, ClusterCause.REJECTED), (400, ClusterCause.REJECTED), (401, ClusterCause.DENIED),
        (403, ClusterCause.DENIED), (404, ClusterCause.NO_KIND), (408, ClusterCause.UNREACHABLE),
        (409, ClusterCause.CONFLICT), (410, ClusterCause.EXPIRED), (418, ClusterCause.REJECTED),
        (500, ClusterCause.UNREACHABLE), (502, ClusterCause.UNREACHABLE),
        (504, ClusterCause.UNREACHABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["", "text/html", "application/json", "application/json; x=y"])
def test_every_refusal_is_told_by_its_code_whoever_wrote_it(
    stub: Stub, kube: KubernetesCluster, status: int, cause: ClusterCause, kind: str
) -> None:
    body = f"<html>\x1b[2J{CANARY} https://x/?sig={CANARY}"
    stub.tell(Conduct(status=status, headers={"Content-Type": kind} if kind else {}, body=body))
    assert cause_of(kube.list, "").cause is cause
    assert cause_of(list, kube.watch("", "1", 5)).cause is cause
    assert cause_of(kube.patch_status, "op", {"status": {}}).cause is cause


@pytest.mark.parametrize(
    "body",
    [
        "", "<html>Please sign in</html>", "null", "[]", "7", '"x"', "{}", '{"items": null}',
        '{"items": [7]}', '{"items": ["x"]}', '{"items": [[]]}', '{"items": []}',
        '{"metadata": [], "items": []}', "[" * 5000, '{"metadata": {"labels": 7}}', "\ufeff{}",
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_rejected_whatever_it_is(
    stub: Stub, kube: KubernetesCluster, body: str
) -> None:
    stub.tell(Conduct(status=200, headers={"Content-Type": "application/json"}, body=body))
    assert cause_of(kube.list, "").cause is ClusterCause.REJECTED
    assert cause_of(kube.patch_status, "op", {}).cause is ClusterCause.REJECTED
    assert cause_of(kube.get, "op").cause is ClusterCause.REJECTED


@pytest.mark.parametrize(
    "line",
    [
        "x", "{}", "[]", '{"type": "ADDED"}', '{"type": 7, "object": {}}',
        '{"type": "ADDED", "object": 7}',
        '{"type": "ERROR", "object": []}', '{"type": "ERROR", "object": {"code": "x"}}',
    ],
)  # fmt: skip
def test_an_event_that_makes_no_sense_is_rejected(
    stub: Stub, kube: KubernetesCluster, line: str
) -> None:
    stub.tell(Conduct(status=200, body=line + "\n"))
    assert cause_of(list, kube.watch("", "1", 5)).cause is ClusterCause.REJECTED


def test_an_error_in_a_watch_is_told_as_if_it_had_been_the_answer(
    stub: Stub, kube: KubernetesCluster
) -> None:
    for code, cause in ((410, ClusterCause.EXPIRED), (500, ClusterCause.UNREACHABLE)):
        event = {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "m"}}
        stub.tell(Conduct(status=200, body=json.dumps(event) + "\n"))
        assert cause_of(list, kube.watch("", "1", 5)).cause is cause


def test_a_server_that_is_not_there_or_hangs_up_is_unreachable_and_found_again(
    stub: Stub, kube: KubernetesCluster, connect: Connect
) -> None:
    kube.list("")
    stub.tell(Conduct(drop=True))
    assert cause_of(kube.list, "").cause is ClusterCause.UNREACHABLE
    stub.stop()
    assert cause_of(kube.list, "").cause is ClusterCause.UNREACHABLE
    stub.tell()
    stub.start()
    assert kube.list("")[0] == ()
