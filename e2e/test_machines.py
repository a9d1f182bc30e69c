"""Machines stay in step: bind lost, mirror damaged, machine restarted or repaved, power lost."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from e2e.lab import MACHINE_ROOT, Lab
from e2e.node import CONFIG, CONFIG_FILE, SLOT_ROOT, Node, missed
from e2e.releases import CRASH, HANG, Releases

pytestmark = pytest.mark.lab

UNBIND = f"systemd-run -q --machine=kube1 --wait --pipe /bin/umount --lazy {SLOT_ROOT}"


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Node:
    """A new host with 1.0.0."""
    node = Node(lab, releases)
    node.install()
    return node


@pytest.fixture
def unhurried(node: Node) -> Iterator[None]:
    """The daemon is stopped, so that nothing is repaired behind a test's back."""
    node.lab.host("systemctl", "stop", "hostsync.service")
    yield
    node.lab.host("systemctl", "start", "hostsync.service")


def machine(node: Node, name: str = "kube1") -> dict[str, object]:
    """What status says of a machine."""
    (found,) = [m for m in node.status()["machines"] if m["name"] == name]
    return dict(found)


def await_in_step(node: Node, view: str, name: str = "kube1") -> None:
    """Wait until the daemon has brought a machine back in step."""
    node.lab.host_script(
        f"until hostsync --output json status | grep -q "
        f'\'"name":"{name}","view":"{view}","release":"[^"]*","mirrored":true,"in_step":true\';'
        "do sleep 0.1; done"
    )


def test_a_daemon_that_is_stopped_while_it_starts_has_not_failed(node: Node) -> None:
    done = node.lab.host_script("""
        for hundredths in 02 05 08 11 14 17 20 23 26 29 35 45; do
            systemctl stop hostsync
            systemctl start --no-block hostsync
            until [ "$(systemctl show -P MainPID hostsync)" != 0 ]; do :; done
            sleep 0.$hundredths
            systemctl stop hostsync
            systemctl show -P ActiveState hostsync
        done
        systemctl start hostsync
    """)
    assert set(done.out.split()) == {"inactive"}


@pytest.mark.usefixtures("unhurried")
def test_a_machine_that_loses_its_bind_is_served_by_the_mirror_at_once(node: Node) -> None:
    begun = node.moment()
    node.lab.host_script(UNBIND)
    assert machine(node)["view"] == "mirror"
    assert machine(node)["in_step"] is True
    inside = node.lab.machine("/usr/local/bin/hostsync-credential", "version").out
    assert inside == "hostsync-credential 1.0.0 (protocol 1)\n"
    assert missed(node.beats_since(begun)) == []


def test_the_daemon_binds_again_what_was_unbound_and_never_twice(node: Node) -> None:
    await_in_step(node, "bind")
    node.lab.host_script(UNBIND)
    await_in_step(node, "bind")
    table = node.lab.machine("/bin/cat", "/proc/self/mountinfo").out.splitlines()
    assert len([line for line in table if line.split()[4] == SLOT_ROOT]) == 1


@pytest.mark.usefixtures("unhurried")
def test_an_upgrade_reaches_a_machine_that_has_only_the_mirror(node: Node) -> None:
    node.lab.host_script(UNBIND)
    begun = node.moment()
    mounts = node.lab.machine("/bin/cat", "/proc/self/mountinfo").out
    node.lab.write(CONFIG_FILE, CONFIG + 'mirror_only = ["kube1"]\n')
    done = node.upgrade(node.releases.good("1.1.0"))
    node.lab.write(CONFIG_FILE, CONFIG)
    # The service was stopped by the operator: it is not started, the machine is judged alone.
    assert done.code == 0
    assert node.lab.machine("/bin/cat", "/proc/self/mountinfo").out == mounts
    inside = node.lab.machine("/usr/local/bin/hostsync-credential", "version").out
    assert inside == "hostsync-credential 1.1.0 (protocol 1)\n"
    assert missed(node.beats_since(begun)) == []


def test_a_mirror_that_the_guest_damaged_is_found_by_digest_and_repaired(node: Node) -> None:
    await_in_step(node, "bind")
    name = f"{MACHINE_ROOT}{SLOT_ROOT}/green/bin/hostsync-credential"
    good = node.lab.read(name)
    node.lab.write(name, "#!/bin/sh\nexit 0\n", 0o755)
    assert node.hostsync("sync").code == 0
    assert node.lab.read(name) == good


def test_a_link_that_the_guest_planted_leads_nowhere(node: Node) -> None:
    node.lab.host_script(
        f"mkdir -p /root/precious && echo keep >/root/precious/file;"
        f"cd {MACHINE_ROOT}{SLOT_ROOT} && rm -rf blue && ln -s /root/precious blue"
    )
    assert node.hostsync("sync").code == 0
    assert node.lab.host("ls", "/root/precious").out == "file\n"
    kind = node.lab.host("stat", "-c", "%F", f"{MACHINE_ROOT}{SLOT_ROOT}/blue").out
    assert kind == "directory\n"


def test_a_link_planted_in_a_parent_directory_is_refused_and_named(node: Node) -> None:
    node.lab.host_script(
        f"mkdir -p /root/elsewhere; cd {MACHINE_ROOT}/usr/local"
        "&& mv bin bin.aside && ln -s /root/elsewhere bin"
    )
    done = node.hostsync("sync")
    node.lab.host_script(f"cd {MACHINE_ROOT}/usr/local && rm bin && mv bin.aside bin")
    assert done.code == 1
    assert "usr/local/bin" in done.last("error")["message"]
    assert node.lab.host("ls", "/root/elsewhere").out == ""


@pytest.mark.disrupts
def test_a_machine_that_restarts_is_bound_before_its_init_runs(node: Node) -> None:
    node.lab.host_script(
        "systemctl stop systemd-nspawn@kube1; systemctl start systemd-nspawn@kube1"
    )
    first = node.lab.await_beat(lambda beat: True)
    assert first.release == "1.1.0"
    await_in_step(node, "bind")
    table = node.lab.machine("/bin/cat", "/proc/self/mountinfo").out.splitlines()
    (mount,) = [line for line in table if line.split()[4] == SLOT_ROOT]
    assert "ro" in mount.split()[5].split(",")


@pytest.mark.disrupts
def test_a_release_switched_while_the_machine_is_down_is_there_when_it_boots(node: Node) -> None:
    node.lab.host("systemctl", "stop", "systemd-nspawn@kube1")
    assert node.upgrade(node.releases.good("1.2.0")).code == 0
    node.lab.host("systemctl", "start", "systemd-nspawn@kube1")
    assert node.lab.await_beat(lambda beat: True).release == "1.2.0"
    await_in_step(node, "bind")


@pytest.mark.disrupts
def test_a_repaved_machine_gets_what_is_current_before_its_units_start(node: Node) -> None:
    new, draft = "/var/lib/machines/kube2", "/var/lib/machines/.kube2"
    node.lab.host_script(
        f"cp -a {MACHINE_ROOT} {draft}; cd {draft};"
        f"rm -rf .{SLOT_ROOT} usr/local/bin/hostsync* etc/machine-id;"
        "rm -f etc/systemd/system/*.wants/kubelet.service;"
        "cp /etc/systemd/nspawn/kube1.nspawn /etc/systemd/nspawn/kube2.nspawn;"
        f"mv {draft} {new}; systemctl start systemd-nspawn@kube2"
    )
    await_in_step(node, "bind", "kube2")
    mirror = node.lab.read(f"{new}{SLOT_ROOT}/current/RELEASE")
    assert mirror == node.lab.read(f"{SLOT_ROOT}/current/RELEASE")
    link = node.lab.host("readlink", f"{new}/usr/local/bin/hostsync-credential").out
    assert link == "../lib/hostsync/current/bin/hostsync-credential\n"
    node.lab.host_script(
        f"systemctl stop systemd-nspawn@kube2; rm /etc/systemd/nspawn/kube2.nspawn;"
        f"mv {new} {draft}; rm -rf {draft}"
    )


@pytest.mark.disrupts
@pytest.mark.parametrize(
    ("version", "act", "outcome"),
    [("1.3.0", "", "complete"), ("1.3.1", CRASH, "rolled-back"), ("1.3.2", HANG, "rolled-back")],
    ids=["good", "crash", "hang"],
)
def test_a_power_cut_during_the_trial_delays_the_verdict_and_does_not_change_it(
    node: Node, version: str, act: str, outcome: str
) -> None:
    releases = node.releases
    release = releases.broken_daemon(version, act) if act else releases.good(version)
    with node.impatient() if act == HANG else nullcontext():
        order = node.upgrade(release, "--no-wait").lines[-1]["order"]
        node.lab.power_cut()
        node.await_end(order)
    status = node.status()
    assert status["last_order"]["outcome"] == outcome
    assert status["problems"] == []
    assert node.unit("ActiveState") == "active"
    current = node.lab.read(f"{SLOT_ROOT}/current/RELEASE")
    assert (f"version={version}\n" in current) == (outcome == "complete")
    assert node.lab.await_beat().release == current.partition("version=")[2].partition("\n")[0]
