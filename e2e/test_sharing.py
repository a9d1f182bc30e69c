"""The host shares its credential: kubelet in the machine follows each change, never restarted."""

import pytest

from e2e.kubeconfig import SERVER
from e2e.lab import MACHINE_ROOT, Lab
from e2e.node import CONFIG, SLOT_ROOT, Node
from e2e.releases import Releases
from e2e.world.identity import AKS_SERVER, SERVICE_PRINCIPAL, TENANT

pytestmark = pytest.mark.lab

PLACE = "/var/lib/hostsync/credential"
SHIM = "/usr/local/bin/hostsync-credential"
FILE = f"""\
login = "spn"
client_id = "{SERVICE_PRINCIPAL.client_id}"
tenant_id = "{TENANT}"
client_secret_file = "client-secret"
"""
ROTATED_SECONDS = 30.0
"""From a change on the host to the beat that shows it: the daemon's glance, and a slow machine."""


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Node:
    """A new host with 1.0.0, whose kubelet's kubeconfig names no identity."""
    node = Node(lab, releases)
    node.install()
    write_secret(node, SERVICE_PRINCIPAL.secret)
    lab.write("/etc/hostsync/credential.toml", FILE, 0o600)
    assert node.hostsync("sync").code == 0
    where = ("--server", SERVER, "--ca-file", "/etc/ssl/certs/ca-certificates.crt", "--replace")
    lab.machine(f"{SLOT_ROOT}/current/bin/hostsync", "kubeconfig", *where)
    lab.machine("/bin/rm", "-rf", "/run/hostsync/credential")
    return node


def write_secret(node: Node, secret: str) -> None:
    """Rotate as an operator should: write beside, rename over."""
    node.lab.write("/etc/hostsync/client-secret.new", f"{secret}\n", 0o600)
    node.lab.host("mv", "/etc/hostsync/client-secret.new", "/etc/hostsync/client-secret")


def mounts(node: Node) -> list[str]:
    """The options of each mount at the credential's place, seen inside."""
    table = node.lab.machine("/bin/cat", "/proc/self/mountinfo").out.splitlines()
    return [line.split()[5] for line in table if line.split()[4] == PLACE]


def configuration(node: Node) -> str:
    """What the plugin in the machine says of its configuration."""
    said = node.lab.machine(SHIM, "explain", "--server-id", AKS_SERVER).out.splitlines()
    return next(line for line in said if line.startswith("configuration: "))


def machine_status(node: Node) -> str:
    (found,) = (each for each in node.status()["machines"] if each["name"] == "kube1")
    return str(found["credential"])


def rootfs_with_secret(node: Node) -> str:
    """Files of the machine's own disk that hold the secret."""
    found = node.lab.host(
        "grep", "-rlF", "--exclude-dir=usr", SERVICE_PRINCIPAL.secret, MACHINE_ROOT, check=False
    )
    return found.out


def kubelet(node: Node) -> str:
    """The run of kubelet's unit: another one after every restart."""
    words = ("systemctl", "show", "--value", "-p", "InvocationID", "kubelet.service")
    return node.lab.machine("/bin/" + words[0], *words[1:]).out


def test_it_is_bound_read_only_once_and_nothing_of_it_is_in_the_rootfs(node: Node) -> None:
    node.lab.await_beat(timeout=ROTATED_SECONDS)
    (options,) = mounts(node)
    assert "ro" in options.split(",")
    assert machine_status(node) == "by bind"
    assert f"{PLACE}/credential.toml, the host's, bound (" in configuration(node)
    assert node.lab.host("ls", "-A", f"{MACHINE_ROOT}{PLACE}").out == ""
    assert rootfs_with_secret(node) == ""
    inside = node.lab.machine("/usr/bin/stat", "-c", "%a %u", f"{PLACE}/client-secret").out
    assert inside == "600 0\n"
    assert node.lab.machine("/bin/ls", PLACE).out.split() == ["client-secret", "credential.toml"]


def test_a_rotation_on_the_host_reaches_kubelet_without_a_restart(node: Node) -> None:
    """A wrong secret is refused (5) although a token is cached: it is the new one that is used."""
    before = kubelet(node)
    write_secret(node, "wrong")
    beat = node.lab.await_beat(lambda beat: not beat.ok, timeout=ROTATED_SECONDS)
    assert beat.message.endswith("hostsync-credential failed with exit code 5")
    write_secret(node, SERVICE_PRINCIPAL.secret)
    node.lab.await_beat(timeout=ROTATED_SECONDS)
    assert kubelet(node) == before
    assert len(mounts(node)) == 1


def test_a_sync_does_it_at_once_without_the_daemon(node: Node) -> None:
    node.lab.host("systemctl", "stop", "hostsync.service")
    write_secret(node, "wrong")
    node.hostsync("sync")
    asked = node.lab.machine(SHIM, "check", "--server-id", AKS_SERVER, check=False)
    assert "AADSTS7000215" in asked.err
    write_secret(node, SERVICE_PRINCIPAL.secret)
    node.hostsync("sync")
    assert node.lab.machine(SHIM, "check", "--server-id", AKS_SERVER).out.startswith("ok ")
    node.lab.host("systemctl", "start", "hostsync.service")
    node.lab.await_beat(timeout=ROTATED_SECONDS)


def test_a_slip_of_the_pen_costs_no_token_and_is_told(node: Node) -> None:
    node.lab.write("/etc/hostsync/credential.toml", "client_secret = \n", 0o600)
    assert node.hostsync("sync").code != 0
    assert any("is not TOML" in problem for problem in node.status()["problems"])
    assert node.lab.machine(SHIM, "check", "--server-id", AKS_SERVER).out.startswith("ok ")
    node.lab.write("/etc/hostsync/credential.toml", FILE, 0o600)
    assert node.hostsync("sync").code == 0


@pytest.mark.disrupts
def test_a_machine_that_boots_has_it_before_kubelet_starts(node: Node) -> None:
    node.lab.host_script(
        "systemctl stop hostsync systemd-nspawn@kube1; systemctl start systemd-nspawn@kube1"
    )
    assert node.lab.await_beat(lambda beat: True, timeout=ROTATED_SECONDS).ok
    assert len(mounts(node)) == 1
    node.lab.host("systemctl", "start", "hostsync.service")
    assert node.hostsync("sync").code == 0
    assert len(mounts(node)) == 1


@pytest.mark.disrupts
def test_a_machine_without_the_bind_gets_a_copy_only_if_that_is_configured(node: Node) -> None:
    mirror_only = f'{CONFIG}mirror_only = ["kube1"]\n'
    restart = (
        "systemctl restart hostsync; systemctl stop systemd-nspawn@kube1;"
        "systemctl start systemd-nspawn@kube1"
    )
    node.lab.write("/etc/hostsync/config.toml", f"{mirror_only}credential_copy = true\n")
    node.lab.host_script(restart)
    node.lab.await_beat(timeout=ROTATED_SECONDS)
    assert mounts(node) == []
    assert machine_status(node) == "by copy"
    assert f"{PLACE}/credential.toml, the host's, copied (" in configuration(node)
    modes = node.lab.host_script(f"stat -c %a {MACHINE_ROOT}{PLACE}/*").out
    assert modes.split() == ["600", "600"]

    node.lab.write("/etc/hostsync/config.toml", mirror_only)
    node.lab.host("systemctl", "restart", "hostsync.service")
    assert node.hostsync("sync").code == 0
    assert rootfs_with_secret(node) == ""
    assert machine_status(node) == "none: the configuration says mirror only"
    assert configuration(node).endswith("the configuration says mirror only")

    node.lab.write("/etc/hostsync/config.toml", CONFIG)
    node.lab.host("systemctl", "restart", "hostsync.service")
    node.lab.await_beat(timeout=ROTATED_SECONDS)
    assert machine_status(node) == "by bind"


def test_a_credential_that_is_removed_on_the_host_is_gone_from_the_machine(node: Node) -> None:
    node.lab.host("rm", "/etc/hostsync/credential.toml")
    assert node.hostsync("sync").code == 0
    assert node.lab.machine("/bin/ls", "-A", PLACE).out == ""
    assert configuration(node) == "configuration: none"
    assert machine_status(node) == ""
    assert rootfs_with_secret(node) == ""


def test_the_secret_is_in_no_journal_and_no_command_line(node: Node) -> None:
    said = [
        *(each.message for each in node.lab.journal()),
        *(each.message for each in node.lab.journal(in_machine=True)),
        node.lab.host_script("cat /proc/*/cmdline /proc/*/environ 2>/dev/null || true").out,
    ]
    assert not [each for each in said if SERVICE_PRINCIPAL.secret in each]
