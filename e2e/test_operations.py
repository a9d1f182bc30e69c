"""Orders from the cluster: carried out, judged, and their verdicts published, whatever happens."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import pytest

from e2e.lab import Lab
from e2e.node import ORDERS, Node, missed
from e2e.operations import OPERATIONS, SIGNATURE, Operations
from e2e.releases import CRASH, LATE_CRASH, Releases
from e2e.world.conduct import EVERY_OTHER_WRITE_CONFLICTS

pytestmark = pytest.mark.lab

STATE = "/var/lib/hostsync/hostsync"


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Node:
    """A new host with 1.0.0 that takes orders from the cluster."""
    node = Node(lab, releases)
    node.install(OPERATIONS)
    Operations(node).prepare()
    return node


@pytest.fixture(scope="module")
def cluster(node: Node) -> Operations:
    return Operations(node)


@pytest.fixture(autouse=True)
def no_beat_is_missed(request: pytest.FixtureRequest, node: Node) -> Iterator[None]:
    begun = node.moment()
    yield
    if request.node.get_closest_marker("disrupts") is None:
        assert missed(node.beats_since(begun)) == []


def history(node: Node) -> list[dict[str, object]]:
    lines = node.hostsync("history").lines
    return [line["order"] for line in lines if "order" in line]


def test_a_good_release_is_complete_after_the_restart_of_the_daemon_that_took_it(
    node: Node, cluster: Operations
) -> None:
    before = node.unit("InvocationID")
    record = cluster.follow("good")
    cluster.upgrade("good", node.releases.good("1.1.0"))
    assert cluster.await_end("good")[:2] == ("Complete", "Succeeded")
    assert node.unit("InvocationID") != before
    assert node.lab.read("/usr/local/lib/hostsync/current/RELEASE").splitlines()[1] == (
        "version=1.1.0"
    )
    assert node.lab.await_beat().release == "1.1.0"
    statuses = [each.get("status", {}) for each in documents(node.lab.read(record))]
    phases = [phase for phase, _ in groupby(each.get("phase", "") for each in statuses)]
    assert phases[-2:] == ["InProgress", "Complete"]
    messages = " | ".join(each.get("message", "") for each in statuses)
    assert [word for word in ("staging", "verifying") if word not in messages] == []
    assert "switched" in messages or "judging" in messages


def documents(text: str) -> list[dict[str, dict[str, str]]]:
    """JSON objects that follow one another."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := text.find("{", at)) >= 0:
        document, at = decoder.raw_decode(text, at)
        found.append(document)
    return found


def test_an_operation_that_is_over_is_not_carried_out_again_by_a_new_daemon(
    node: Node, cluster: Operations
) -> None:
    before, ended = cluster.get("good"), history(node)
    node.lab.host("systemctl", "restart", "hostsync.service")
    cluster.order("marker", "HostReboot", {})
    assert cluster.await_end("marker")[:2] == ("Failed", "UnsupportedOperation")
    assert cluster.get("good") == before
    assert history(node) == ended


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("no-digest", {"sha256": ""}, "InvalidParameters"),
        ("odd-digest", {"sha256": "beef"}, "InvalidParameters"),
        ("clear-text", {"downloadURL": "http://releases.lab/a.tar.gz"}, "InvalidParameters"),
        ("no-agent", {"agent": "somebody"}, "InvalidParameters"),
        ("other-bytes", {"sha256": "0" * 64}, "ExecutionFailed"),
        ("not-there", {"downloadURL": "https://releases.lab:8443/no?sig=1"}, "ExecutionFailed"),
    ],
)
def test_an_order_that_cannot_be_carried_out_changes_nothing(
    node: Node, cluster: Operations, name: str, changes: dict[str, str], reason: str
) -> None:
    before = node.snapshot()
    good = cluster.parameters(node.releases.good("1.2.0"))
    cluster.order(name, "AgentUpgrade", good | changes)
    phase, said, message = cluster.await_end(name)
    assert (phase, said) == ("Failed", reason), message
    assert node.snapshot() == before


def test_a_candidate_for_another_architecture_or_broken_in_the_machine_changes_nothing(
    node: Node, cluster: Operations
) -> None:
    before = node.snapshot()
    cluster.upgrade("wrong-architecture", node.releases.wrong_architecture("1.2.0"))
    cluster.upgrade("broken-shim", node.releases.broken_shim_in_machine("1.2.0"))
    for name, word in (("wrong-architecture", "this host is"), ("broken-shim", "kube1")):
        phase, reason, message = cluster.await_end(name)
        assert (phase, reason) == ("Failed", "ExecutionFailed")
        assert word in message
    assert node.snapshot() == before


def test_a_broken_daemon_is_rolled_back_and_said_so_and_a_later_order_succeeds(
    node: Node, cluster: Operations
) -> None:
    before = node.snapshot()
    broken = node.releases.broken_daemon("1.2.0", CRASH)
    cluster.upgrade("broken", broken)
    phase, reason, message = cluster.await_end("broken")
    assert (phase, reason) == ("Failed", "DaemonFailed")
    assert "1.1.0 was restored" in message
    assert node.snapshot() == before
    cluster.upgrade("again", broken)
    cluster.upgrade("better", node.releases.good("1.3.0"))
    phase, reason, message = cluster.await_end("again")
    assert (phase, reason) == ("Failed", "ExecutionFailed")
    assert "failed here before" in message or "known" in message
    assert cluster.await_end("better")[:2] == ("Complete", "Succeeded")


def test_of_two_orders_the_second_waits_and_says_for_what(node: Node, cluster: Operations) -> None:
    cluster.upgrade("first", node.releases.good("1.4.0"))
    cluster.upgrade("second", node.releases.good("1.1.0"))
    waiting = cluster.await_phase("second", "Pending")
    assert waiting["status"]["message"]
    assert cluster.await_end("first")[:2] == ("Complete", "Succeeded")
    assert cluster.await_end("second")[:2] == ("Complete", "Succeeded")
    assert node.lab.await_beat(lambda beat: beat.release == "1.1.0").ok


@pytest.mark.disrupts
def test_a_verdict_made_while_the_api_is_away_is_published_when_it_is_back(
    node: Node, cluster: Operations
) -> None:
    ended = len(history(node))
    cluster.upgrade("away", node.releases.broken_daemon("1.5.0", LATE_CRASH))
    node.lab.host_script(f"until ls {STATE}/record.json; do sleep 0.02; done")
    node.lab.stop_service("kube")
    node.lab.host_script(
        f"until [ $(wc -l <{STATE}/history.jsonl) -gt {ended} ]; do sleep 0.1; done"
    )
    assert node.unit("ActiveState") == "active"
    node.lab.start_service("kube")
    node.lab.await_beat(timeout=120)
    phase, reason, message = cluster.await_end("away")
    assert (phase, reason) == ("Failed", "DaemonFailed"), message


def test_an_operation_made_anew_under_its_name_gets_its_own_end(
    node: Node, cluster: Operations
) -> None:
    release = node.releases.good("1.6.0")
    cluster.upgrade("twin", release)
    node.lab.host_script(f"until ls {STATE}/record.json; do sleep 0.02; done")
    cluster.kubectl("delete", "machineoperation", "twin")
    cluster.order("twin", "HostPowerOff", {})
    assert cluster.await_end("twin")[:2] == ("Failed", "UnsupportedOperation")
    node.lab.host_script(f"while ls {STATE}/record.json; do sleep 0.1; done")
    last = history(node)[-1]
    assert (last["version"], last["outcome"]) == ("1.6.0", "complete")
    assert cluster.get("twin")["status"]["phase"] == "Failed"


def test_conflicts_on_every_other_write_cost_writes_and_no_work(
    node: Node, cluster: Operations
) -> None:
    orders = len(history(node))
    ours = "/apis/unbounded-cloud.io/"
    node.lab.tell("kube", replace(EVERY_OTHER_WRITE_CONFLICTS, only=ours))
    cluster.upgrade("contended", node.releases.good("1.1.0"))
    ended = cluster.await_end("contended")
    node.lab.tell("kube")
    assert ended[:2] == ("Complete", "Succeeded")
    written = [each for each in node.lab.api_log() if "contended/status" in each.path]
    assert {each.status for each in written} >= {200, 409}
    assert [each for each in written if each.status not in (200, 409)] == []
    assert len(history(node)) == orders + 1


def test_a_selector_is_answered_in_this_machines_entry_alone(
    node: Node, cluster: Operations
) -> None:
    labels = {"matchLabels": {"kubernetes.io/hostname": "kube1"}}
    others = {"matchLabels": {"kubernetes.io/hostname": "kube9"}}
    spec = {"machineRef": None, "machineSelector": labels}
    cluster.order("not-ours", "HostReboot", {}, machineRef=None, machineSelector=others)
    cluster.upgrade("selected", node.releases.good("1.6.0"), spec=spec)
    condition = "--for=jsonpath={.status.targets[0].phase}=Complete"
    cluster.kubectl("wait", condition, "machineoperation/selected", "--timeout=300s", timeout=320)
    status = cluster.get("selected")["status"]
    assert [entry["machineRef"] for entry in status["targets"]] == ["kube1"]
    assert "phase" not in status
    assert "status" not in cluster.get("not-ours")


@pytest.mark.disrupts
def test_a_reboot_of_the_machine_ends_with_it_ready_and_in_step(
    node: Node, cluster: Operations
) -> None:
    leader = node.lab.host("machinectl", "show", "kube1", "-p", "Leader").out
    cluster.order("reboot", "NodeReboot", {}, ttlSecondsAfterFinished=600)
    node.lab.host_script(
        f"""until now=$(machinectl show kube1 -p Leader 2>/dev/null) && [ "$now" ] &&
            [ "$now" != "{leader.strip()}" ]; do sleep 0.2; done"""
    )
    node.lab.await_beat(timeout=120)
    assert cluster.await_end("reboot")[:2] == ("Complete", "Succeeded")
    (machine,) = node.status()["machines"]
    assert (machine["view"], machine["in_step"]) == ("bind", True)


def test_an_operation_is_deleted_its_time_after_its_end(node: Node, cluster: Operations) -> None:
    cluster.order("brief", "HostReboot", {}, ttlSecondsAfterFinished=1)
    cluster.kubectl("wait", "--for=delete", "machineoperation/brief", "--timeout=300s", timeout=320)


def test_a_signed_url_is_nowhere_but_in_the_order(node: Node, cluster: Operations) -> None:
    listed = cluster.kubectl("get", "machineoperation", "--output=jsonpath={.items[*].status}").out
    assert "releases.lab" in listed
    journal = node.lab.host("journalctl", "--no-pager").out
    kept = node.lab.host_script(f"cd /var/lib/hostsync; cat */*; ls {ORDERS} || true").out
    logged = node.lab.host_script("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out
    for text in (listed, journal, kept, logged):
        assert SIGNATURE not in text
