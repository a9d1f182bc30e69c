"""Somebody else's agent, a single file: adopted, upgraded, judged, rolled back, seen inside."""

import io
import platform
import tarfile
from pathlib import Path

import pytest

from e2e.lab import MACHINE_ROOT, Lab
from e2e.node import Node
from e2e.operations import OPERATIONS, Operations
from e2e.releases import Releases
from e2e.tiny_agent import tiny_agent

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the tiny agent is x86-64 code"),
]

PROGRAM = "/usr/local/bin/aks-flex-node"
SLOTS = "/usr/local/lib/aks-flex-node"
UNIT = "aks-flex-node-agent.service"
AGENT = ("--agent", "aks-flex-node")
BOTH = f"""{OPERATIONS}
[agents.aks-flex-node]
window_seconds = 2
stable_seconds = 1
"""
UNIT_TEXT = f"""[Service]
ExecStart={PROGRAM} agent
Restart=on-failure
"""


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Node:
    """A host that had the agent before hostsync came: a file on it, a copy in the machine."""
    node = Node(lab, releases)
    node.install(BOTH)
    for place in (PROGRAM, f"{MACHINE_ROOT}{PROGRAM}"):
        lab.write(place, tiny_agent("1.0.0"), 0o755)
    lab.write(f"/etc/systemd/system/{UNIT}", UNIT_TEXT)
    lab.host_script(f"systemctl daemon-reload; systemctl start {UNIT}")
    return node


def give(node: Node, tmp_path: Path, version: str, *, crashes: bool = False) -> str:
    """Put a candidate on the host."""
    path = tmp_path / f"aks-flex-node-{version}"
    path.write_bytes(tiny_agent(version, crashes=crashes))
    return node.give(path)


def inside(node: Node) -> str:
    """What the machine's copy says."""
    return node.lab.machine(PROGRAM, "version").out.strip()


def test_the_file_that_is_there_is_adopted_without_a_restart(node: Node) -> None:
    running = node.unit("InvocationID", UNIT)
    done = node.hostsync(*AGENT, "install")
    assert done.code == 0, done.err
    assert done.last("installed")["adopted"] is True
    target = node.lab.host("readlink", PROGRAM).out
    assert target == "../lib/aks-flex-node/aks-flex-node-current\n"
    assert "version=1.0.0" in node.lab.read(f"{SLOTS}/aks-flex-node-blue.RELEASE")
    assert node.unit("InvocationID", UNIT) == running
    assert inside(node) == "aks-flex-node version 1.0.0"


def test_an_upgrade_is_judged_and_reaches_the_machine(node: Node, tmp_path: Path) -> None:
    done = node.hostsync(*AGENT, "upgrade", give(node, tmp_path, "1.1.0"))
    assert (done.code, done.last("verdict")["outcome"]) == (0, "complete")
    exe = node.lab.host("readlink", f"/proc/{node.unit('MainPID', UNIT)}/exe").out
    assert exe == f"{SLOTS}/aks-flex-node-green\n"
    assert inside(node) == "aks-flex-node version 1.1.0"


def test_a_release_that_crashes_is_rolled_back(node: Node, tmp_path: Path) -> None:
    before = node.snapshot()
    done = node.hostsync(*AGENT, "upgrade", give(node, tmp_path, "1.2.0", crashes=True))
    assert (done.code, done.last("verdict")["outcome"]) == (5, "rolled-back")
    assert node.snapshot() == before
    assert node.unit("ActiveState", UNIT) == "active"
    assert inside(node) == "aks-flex-node version 1.1.0"


def test_a_rollback_by_hand_returns_to_the_release_before(node: Node) -> None:
    assert node.hostsync(*AGENT, "rollback").code == 0
    assert inside(node) == "aks-flex-node version 1.0.0"


def test_an_operation_upgrades_it_while_hostsync_itself_goes_on(node: Node, tmp_path: Path) -> None:
    cluster = Operations(node)
    cluster.prepare()
    running = node.unit("InvocationID")
    cluster.upgrade("theirs", archive(tmp_path, "1.3.0"), agent="aks-flex-node")
    assert cluster.await_end("theirs")[:2] == ("Complete", "Succeeded")
    assert inside(node) == "aks-flex-node version 1.3.0"
    cluster.upgrade("broken", archive(tmp_path, "1.4.0", crashes=True), agent="aks-flex-node")
    assert cluster.await_end("broken")[:2] == ("Failed", "DaemonFailed")
    assert inside(node) == "aks-flex-node version 1.3.0"
    assert node.unit("InvocationID") == running


def archive(tmp_path: Path, version: str, *, crashes: bool = False) -> Path:
    """A release as its publisher offers it: one file in an archive."""
    name = "aks-flex-node-linux-amd64"
    content = tiny_agent(version, crashes=crashes)
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    path = tmp_path / f"{version}-{name}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as packed:
        packed.addfile(entry, io.BytesIO(content))
    return path


def test_each_agent_has_its_own_state_and_one_status(node: Node) -> None:
    assert node.status()["agent"] == "hostsync"
    assert node.hostsync(*AGENT, "status").last("status")["machines"][0]["in_step"] is True
    history = node.hostsync(*AGENT, "history").lines
    assert [line["order"]["outcome"] for line in history] == [
        "complete", "rolled-back", "complete", "complete", "rolled-back",
    ]  # fmt: skip
