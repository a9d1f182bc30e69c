"""The main job on a real host: install, upgrade, roll back; kubelet never misses a beat."""

import re
from collections.abc import Callable, Iterator

import pytest

from e2e.lab import Lab
from e2e.node import BUSY, SLOT_ROOT, Node, longest_gap, missed
from e2e.releases import CRASH, EXIT_0, GO, HANG, HELD, IGNORES_TERM, LATE_CRASH, Releases

pytestmark = pytest.mark.lab

Recorder = Callable[[str, object], None]


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Node:
    """A new host with 1.0.0."""
    node = Node(lab, releases)
    node.install()
    return node


@pytest.fixture(autouse=True)
def no_beat_is_missed(
    request: pytest.FixtureRequest, node: Node, record_property: Recorder
) -> Iterator[None]:
    """Whatever a test does to the host, kubelet's Lease goes on, but where it is told not to."""
    begun = node.moment()
    yield
    if request.node.get_closest_marker("disrupts") is None:
        beats = node.beats_since(begun)
        record_property("longest time between two renewals, seconds", longest_gap(beats))
        assert missed(beats) == []


def journal_time(node: Node, pattern: str, since: int, unit: str = "hostsync.service") -> float:
    """When a line first stood in a unit's journal, in epoch seconds."""
    entries = node.lab.journal(unit, since / 1000)
    return next(e.time for e in entries if re.search(pattern, e.message))


def test_an_installed_host_runs_the_release_and_its_machine_sees_it(node: Node) -> None:
    assert node.link("current") == node.link("last-good") == "blue"
    assert node.unit("ActiveState") == "active"
    status = node.status()
    (machine,) = status["machines"]
    assert (machine["view"], machine["release"], machine["in_step"]) == ("bind", "1.0.0", True)


def test_the_machine_sees_the_slot_root_through_one_read_only_bind(node: Node) -> None:
    table = node.lab.machine("/bin/cat", "/proc/self/mountinfo").out.splitlines()
    (mount,) = [line for line in table if line.split()[4] == SLOT_ROOT]
    assert "ro" in mount.split()[5].split(",")
    host = node.lab.host("stat", "-c", "%d:%i", SLOT_ROOT).out
    assert node.lab.machine("/bin/stat", "-c", "%d:%i", SLOT_ROOT).out == host


def test_the_mirror_beneath_the_bind_equals_the_host_byte_for_byte(node: Node) -> None:
    tree = """
        find . ! -name WANTED -printf '%P %y %m %l\\n' | sort
        find . -type f ! -name WANTED -print0 | sort -z | xargs -0 sha256sum
    """
    mirror = f"/var/lib/machines/kube1{SLOT_ROOT}"
    host = node.lab.host_script(f"cd {SLOT_ROOT}; {tree}").out
    assert node.lab.host_script(f"cd {mirror}; {tree}").out == host
    seal = node.lab.read(f"{SLOT_ROOT}/current/RELEASE")
    assert node.lab.read(f"{mirror}/WANTED") == seal


def test_a_good_release_is_switched_on_the_host_and_in_the_machine(node: Node) -> None:
    before = node.unit("InvocationID")
    done = node.upgrade(node.releases.good("1.1.0"))
    assert (done.code, done.last("verdict")["outcome"]) == (0, "complete")
    assert (node.link("current"), node.link("last-good")) == ("green", "blue")
    assert node.unit("InvocationID") != before
    assert "green" in node.lab.host("readlink", f"/proc/{node.unit('MainPID')}/exe").out
    inside = node.lab.machine("/usr/local/bin/hostsync-credential", "version").out
    assert inside == "hostsync-credential 1.1.0 (protocol 1)\n"
    assert node.lab.await_beat().release == "1.1.0"


def test_the_release_in_use_ordered_again_is_done_without_a_restart(node: Node) -> None:
    before, running = node.snapshot(), node.unit("InvocationID")
    done = node.upgrade(node.releases.good("1.1.0"))
    assert (done.code, "nothing_to_do" in done.lines[-1]) == (0, True)
    assert (node.snapshot(), node.unit("InvocationID")) == (before, running)


def test_a_release_that_crashes_at_once_is_rolled_back(
    node: Node, record_property: Recorder
) -> None:
    before, begun = node.snapshot(), node.moment()
    done = node.upgrade(node.releases.broken_daemon("1.2.0", CRASH))
    assert (done.code, done.last("verdict")["outcome"]) == (5, "rolled-back")
    assert node.snapshot() == before
    crashed = journal_time(node, "Main process exited", begun)
    after = [e for e in node.lab.journal("hostsync.service", crashed) if "Started" in e.message]
    record_property("first crash to last-good ready, seconds", after[0].time - crashed)
    assert any("cannot read its state" in line for line in done.last("verdict")["evidence"])
    assert node.unit("ActiveState") == "active"


@pytest.mark.parametrize(
    ("version", "act"), [("1.2.1", EXIT_0), ("1.2.2", LATE_CRASH)], ids=["exit-0", "late-crash"]
)
def test_a_release_that_ends_before_its_verdict_is_rolled_back(
    node: Node, version: str, act: str
) -> None:
    before = node.snapshot()
    done = node.upgrade(node.releases.broken_daemon(version, act))
    assert (done.code, done.last("verdict")["outcome"]) == (5, "rolled-back")
    assert node.snapshot() == before
    assert node.unit("ActiveState") == "active"


@pytest.mark.parametrize(
    ("version", "act"), [("1.2.3", HANG), ("1.2.4", IGNORES_TERM)], ids=["hangs", "deaf-to-term"]
)
def test_a_release_that_hangs_is_rolled_back_at_its_start_deadline(
    node: Node, record_property: Recorder, version: str, act: str
) -> None:
    before, begun = node.snapshot(), node.moment()
    with node.impatient():
        done = node.upgrade(node.releases.broken_daemon(version, act))
    assert (done.code, done.last("verdict")["outcome"]) == (5, "rolled-back")
    assert node.snapshot() == before
    stopped = journal_time(node, "^Stopping", begun)
    after = [e for e in node.lab.journal("hostsync.service", stopped) if "Started" in e.message]
    record_property("restart to last-good ready, seconds", after[0].time - stopped)


def test_a_release_that_failed_here_is_refused_when_it_is_ordered_again(node: Node) -> None:
    done = node.upgrade(node.releases.broken_daemon("1.2.0", CRASH))
    assert (done.code, done.last("error")["reason"]) == (3, "known-bad")


def test_a_release_whose_shim_fails_only_in_the_machine_is_refused(node: Node) -> None:
    before = node.snapshot()
    done = node.upgrade(node.releases.broken_shim_in_machine("1.3.0"))
    assert (done.code, done.last("error")["reason"]) == (3, "candidate-fails")
    assert "in machine kube1" in done.last("error")["message"]
    assert "libhostonly.so.1" in done.last("error")["message"]
    assert node.snapshot() == before


def test_a_release_for_another_architecture_is_refused(node: Node) -> None:
    before = node.snapshot()
    done = node.upgrade(node.releases.wrong_architecture("1.3.1"))
    assert (done.code, done.last("error")["reason"]) == (3, "wrong-architecture")
    assert node.snapshot() == before


def test_a_directory_in_the_way_is_refused_and_named(node: Node) -> None:
    node.lab.host_script("cd /usr/local/bin && mv hostsync aside && mkdir hostsync")
    before = node.snapshot()
    path = node.give(node.releases.good("1.4.0"))
    program = f"{SLOT_ROOT}/current/bin/hostsync"
    done = node.hostsync("upgrade", "--preflight", path, program=program)
    assert done.code == 3
    assert "refusing to replace /usr/local/bin/hostsync" in done.last("error")["message"]
    assert node.snapshot() == before
    node.lab.host_script("cd /usr/local/bin && rmdir hostsync && mv aside hostsync")


def test_too_little_space_is_refused_with_the_numbers(node: Node) -> None:
    node.lab.write("/root/greedy.toml", "reserve_mib = 1048576\n")
    before = node.snapshot()
    done = node.hostsync(
        "--config", "/root/greedy.toml", "upgrade", node.give(node.releases.good("1.4.0"))
    )
    assert (done.code, done.last("error")["reason"]) == (3, "no-space")
    assert "MiB free" in done.last("error")["message"]
    assert node.snapshot() == before


def test_preflight_passes_for_a_good_release_and_leaves_no_trace(node: Node) -> None:
    before = node.snapshot()
    done = node.upgrade(node.releases.good("1.4.0"), "--preflight")
    assert done.code == 0
    assert done.last("plan")["steps"][-1]["act"] == "judge"
    assert node.snapshot() == before


def test_a_second_order_during_a_trial_is_busy_and_names_the_first(node: Node) -> None:
    second = node.give(node.releases.good("1.5.0"))
    first = node.upgrade(node.releases.broken_daemon("1.4.0", HELD), "--no-wait")
    refused = node.lab.host("hostsync", "upgrade", second, check=False)
    node.lab.host("touch", GO)
    order = first.lines[-1]["order"]
    node.await_end(order)
    assert refused.code == BUSY
    assert order in refused.err or "judge" in refused.err
    assert node.status()["last_order"]["outcome"] == "complete"


def test_a_judge_that_is_killed_goes_on_where_it_stopped(node: Node) -> None:
    release = node.releases.broken_daemon("1.5.1", HANG)
    with node.impatient():
        order = node.upgrade(release, "--no-wait").lines[-1]["order"]
        node.lab.host_script(
            "until systemctl is-active -q hostsync-judge; do sleep 0.05; done;"
            "until systemctl show -P SubState hostsync | grep -q start; do sleep 0.05; done;"
            "systemctl kill --signal=KILL hostsync-judge"
        )
        node.await_end(order)
    assert node.status()["last_order"]["outcome"] == "rolled-back"
    assert node.unit("ActiveState") == "active"
    assert node.status()["problems"] == []


def test_a_rollback_by_hand_returns_to_the_last_good_release(node: Node) -> None:
    current, last_good = node.link("current"), node.link("last-good")
    assert node.hostsync("rollback").code == 0
    assert (node.link("current"), node.link("last-good")) == (last_good, current)
    assert node.lab.await_beat().release == "1.1.0"


def staging(path: str) -> str:
    """Shell text that orders a release and goes on, with `$pid` set, when it is being staged."""
    return f"""
        hostsync upgrade {path} & pid=$!
        until ls -d {SLOT_ROOT}/.hostsync-staging-* 2>/dev/null; do kill -0 $pid; done
    """


def test_an_interrupted_upgrade_takes_everything_back(node: Node) -> None:
    before = node.snapshot()
    path = node.give(node.releases.good("1.6.0"))
    done = node.lab.host_script(f"{staging(path)} kill -TERM $pid; wait $pid", check=False)
    assert done.code == 130
    assert node.snapshot() == before


def test_a_host_killed_while_staging_is_tidied_by_the_next_command(node: Node) -> None:
    before = node.snapshot()
    path = node.give(node.releases.good("1.6.0"))
    node.lab.host_script(f"{staging(path)} kill -KILL $pid; wait $pid || true")
    assert node.hostsync("recover").code == 0
    assert node.hostsync("sync").code == 0
    assert node.snapshot() == before


def test_nothing_secret_is_in_what_hostsync_keeps_or_says(node: Node) -> None:
    tokens = {e.token for e in node.lab.imds_log() if e.token}
    said = node.lab.host_script("cat /var/lib/hostsync/*/*; journalctl -q --no-pager").out
    assert tokens
    assert "eyJ" not in said
    assert not [token for token in tokens if token in said]
