"""The lab is what it says it is: a real host, a real machine without Python, a world to talk to."""

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from e2e import disk
from e2e.boot import boot_lab
from e2e.engine import Engine
from e2e.entrance import entrance
from e2e.ground import SOURCE, containers, sweep
from e2e.lab import MACHINE_ROOT, Lab
from e2e.records import Beat, CommandFailedError, missed
from e2e.world import conduct
from e2e.world.documents import decode, section, text
from e2e.world.identity import AKS_SERVER, SYSTEM_ASSIGNED, claims_for
from e2e.world.pki import make_signing_key
from e2e.world.tokens import Signer, key_id_of

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.slow]

SHIM = f"{MACHINE_ROOT}/usr/local/bin/hostsync-credential"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kube1"
STUB_SHIM = SOURCE / "stub-shim"


@pytest.fixture(scope="module")
def used(lab: Lab) -> Lab:
    """The lab with a working stand-in of the credential plugin."""
    lab.reset()
    lab.copy_in(STUB_SHIM, SHIM)
    lab.await_beat()
    return lab


@pytest.fixture
def well(used: Lab) -> Lab:
    """The lab with a world that behaves, whatever the test before asked of it."""
    for service in ("imds", "entra", "kube"):
        used.tell(service)
    used.await_beat()
    return used


def kubectl(lab: Lab, *words: str, token: str) -> tuple[int, str]:
    done = lab.machine(
        "kubectl",
        "--server=https://kube-api.lab:6443",
        "--certificate-authority=/etc/ssl/certs/ca-certificates.crt",
        f"--token={token}",
        *words,
        check=False,
    )
    return done.code, done.out + done.err


def imds_token(lab: Lab) -> str:
    credential = json.loads(lab.machine("/usr/local/bin/hostsync-credential").out)
    return str(credential["status"]["token"])


def test_host_and_machine_are_up(lab: Lab, record_property: Callable[[str, object], None]) -> None:
    assert lab.host("systemctl", "is-system-running").out == "running\n"
    assert lab.machine("systemctl", "is-system-running").out == "running\n"
    assert lab.host("cat", "/proc/1/comm").out == "systemd\n"
    record_property("boot, seconds", lab.boot_seconds)


def test_neither_host_nor_machine_has_python_or_hostsync(lab: Lab) -> None:
    look = "-xdev ( -name python* -o -name pip* -o -name *hostsync* ) ( -type f -o -type l )"
    words = ("find", "/", *look.split(), "-perm", "/111")
    assert lab.host(*words, "-not", "-path", "/var/lib/machines/*").out == ""
    assert lab.machine(*words).out == ""


def test_host_holds_nothing_of_the_lab_but_its_files(lab: Lab) -> None:
    mounts = lab.read("/proc/self/mountinfo")
    assert " /lab" not in mounts
    assert "/e2e" not in mounts
    assert lab.host("ls", "-d", "/lab", check=False).code != 0


def test_machine_has_the_settings_of_a_worker(lab: Lab) -> None:
    shown = lab.host("machinectl", "show", "kube1", "-p", "Class", "-p", "Service", "--value").out
    assert set(shown.split()) == {"container", "systemd-nspawn"}
    leader = lab.host("machinectl", "show", "kube1", "-p", "Leader", "--value").out.strip()
    assert lab.read(f"/proc/{leader}/uid_map").split() == ["0", "0", "4294967295"]
    host_net, its_net = lab.host("readlink", "/proc/1/ns/net", f"/proc/{leader}/ns/net").out.split()
    assert host_net == its_net


def test_machined_can_bind_into_the_running_machine(lab: Lab) -> None:
    lab.host_script("mkdir -p /srv/given && echo hello >/srv/given/word")
    lab.host("machinectl", "bind", "--read-only", "--mkdir", "kube1", "/srv/given", "/srv/given")
    assert lab.machine("cat", "/srv/given/word").out == "hello\n"
    assert lab.machine("touch", "/srv/given/other", check=False).code != 0


def test_identity_address_exists_in_the_lab_and_nowhere_else(lab: Lab) -> None:
    assert "169.254.169.254" in lab.machine("cat", "/proc/net/fib_trie").out
    assert "169.254.169.254" not in Path("/proc/net/fib_trie").read_text()
    # Nothing sent in there can get out: there is no route at all.
    assert lab.read("/proc/net/route").count("\n") == 1


def test_kubelet_records_its_failures_before_there_is_a_shim(lab: Lab) -> None:
    lab.reset()
    beat = lab.await_beat(lambda beat: not beat.ok)
    assert beat.rc == 1
    assert "hostsync-credential" in beat.message
    assert beat.release == ""
    complaints = lab.journal("kubelet.service", in_machine=True)
    assert any(f"beat {beat.n} failed" in entry.message for entry in complaints)


def test_each_beat_brings_a_fresh_token_from_imds_to_the_lease(well: Lab) -> None:
    first = well.await_beat()
    last = well.await_beat(lambda beat: beat.ok and beat.n >= first.n + 3)
    beats = [beat for beat in well.beats() if first.n <= beat.n <= last.n]
    assert all(beat.ok for beat in beats)
    tokens = [renewal_token(well, beat) for beat in beats]
    assert len(set(tokens)) == len(beats)
    issued = [entry.token for entry in well.imds_log() if entry.agent == "stub"]
    assert set(tokens) <= set(issued)
    lease = decode(kubectl(well, "get", "--raw", LEASE, token=imds_token(well))[1].encode())
    assert text(section(lease, "spec"), "renewTime").startswith(
        time.strftime("%Y-%m-%dT", time.gmtime())
    )


def renewal_token(lab: Lab, beat: Beat) -> str:
    """Return the token of the one renewal that the server stored during a beat."""
    (token,) = (
        entry.token
        for entry in lab.api_log()
        if beat.start <= entry.time * 1000 <= beat.end and entry.verb == "PUT"
    )
    return token


def test_a_beat_that_takes_too_long_leaves_a_gap(well: Lab) -> None:
    well.tell("imds", dataclasses.replace(conduct.slow(2.5), times=1))
    slow = well.await_beat(lambda beat: beat.end - beat.start > 2000)
    after = well.await_beat()
    between = [beat for beat in well.beats() if slow.n <= beat.n <= after.n]
    assert set(missed(between)) >= {slow.n + 1, slow.n + 2}


def test_beats_fail_while_the_identity_endpoint_is_down_and_recover(well: Lab) -> None:
    well.tell("imds", conduct.DOWN)
    down = well.await_beat(lambda beat: not beat.ok)
    assert "exit code" in down.message
    well.tell("imds")
    assert well.await_beat().n > down.n


def test_api_answers_401_to_an_expired_token(well: Lab) -> None:
    well.tell("imds", conduct.Conduct(token_lifetime=-5))
    code, said = kubectl(well, "get", "--raw", "/api/v1/nodes/kube1", token=imds_token(well))
    assert code != 0
    assert "Unauthorized" in said
    assert (well.api_log()[-1].status, well.api_log()[-1].refused) == (401, "Unauthorized: expired")


def test_api_answers_401_to_a_forged_token(well: Lab) -> None:
    true_id = key_id_of(imds_token(well))
    forger = Signer(make_signing_key())
    forger.key_id = true_id
    token = forger.sign(claims_for(SYSTEM_ASSIGNED, AKS_SERVER, int(time.time()), 3600))
    code, said = kubectl(well, "get", "--raw", "/api/v1/nodes/kube1", token=token)
    assert code != 0
    assert "Unauthorized" in said
    refusals = [entry.refused for entry in well.api_log() if entry.status == 401]
    assert refusals[-1] == "Unauthorized: the signature is wrong"


def test_kubectl_finds_nodes_by_discovery_and_changes_their_status(well: Lab) -> None:
    token = imds_token(well)
    assert kubectl(well, "get", "node", "kube1", "-o", "name", token=token) == (0, "node/kube1\n")
    patch = '{"status":{"nodeInfo":{"kubeletVersion":"v0"}}}'
    words = ("patch", "node", "kube1", "--subresource=status", "--type=merge", f"--patch={patch}")
    code, said = kubectl(well, *words, token=token)
    assert code == 0, said
    shown = kubectl(well, "get", "node", "kube1", "-o=jsonpath={.status.nodeInfo}", token=token)
    assert json.loads(shown[1]) == {"kubeletVersion": "v0"}


def test_commands_carry_their_exit_code_and_end_at_their_time_limit(lab: Lab) -> None:
    assert lab.host("sh", "-c", "exit 9", check=False).code == 9
    assert lab.machine("sh", "-c", "exit 7", check=False).code == 7
    assert lab.host("sleep", "77", check=False, timeout=0.3).code == 124
    assert lab.host("pgrep", "-f", "[s]leep 77", check=False).out == ""
    with pytest.raises(CommandFailedError, match="no such thing"):
        lab.host_script("echo no such thing >&2; false; echo reached")


def test_commands_have_what_the_host_s_own_processes_have(lab: Lab) -> None:
    of_init, own = lab.host_script("""
        for process in 1 self; do
            grep CapBnd /proc/$process/status | tr '\\n' ' '
            readlink /proc/$process/ns/{mnt,uts,ipc,net,pid} | tr '\\n' ' '
            echo
        done
    """).out.splitlines()
    assert own == of_init


def test_the_engine_is_the_way_in_where_its_processes_are_not_seen(lab: Lab) -> None:
    class Elsewhere(Engine):
        def docker(self, *args: str, **_: object) -> CompletedProcess[str]:
            assert args[0] == "inspect"
            return CompletedProcess(args, 0, stdout=f"{os.getpid()}\n")

    engine = lab.ground.engine
    way = entrance(Elsewhere(host=engine.host, compose=engine.compose), lab.container("host"))
    assert way.words[0] == "docker"
    done = subprocess.run([*way.words, "cat", "/etc/.furnished"], env=way.environment, check=False)
    assert done.returncode == 0


def test_copied_files_keep_modes_and_links_and_belong_to_root(lab: Lab, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_text("#!/bin/sh\necho ran\n")
    (tree / "bin/tool").chmod(0o755)
    (tree / "current").symlink_to("bin")
    lab.copy_in(tree, "/tmp/given/tree")
    assert lab.host("/tmp/given/tree/current/tool").out == "ran\n"
    assert lab.host("stat", "-c", "%U %a", "/tmp/given/tree/bin/tool").out == "root 755\n"


def test_power_cut_loses_the_host_s_memory_and_nothing_of_the_world(well: Lab) -> None:
    well.host_script("echo kept >/var/lib/kept; echo lost >/run/lost")
    before = well.beats()[-1]
    well.power_cut()
    assert well.read("/var/lib/kept") == "kept\n"
    assert well.host("cat", "/run/lost", check=False).code != 0
    well.await_beat()
    assert before in well.beats()
    # The Lease of before the cut is still there: kubelet replaced it and had not to create it.
    created = [entry for entry in well.api_log() if entry.verb == "POST" and entry.status == 201]
    assert len(created) == 1


def test_reset_gives_a_host_and_a_world_as_new(used: Lab) -> None:
    used.host("touch", "/var/lib/used")
    used.reset()
    assert used.host("ls", "/var/lib/used", check=False).code != 0
    assert used.imds_log() == ()
    assert all(not beat.ok for beat in used.beats())
    used.copy_in(STUB_SHIM, SHIM)
    used.await_beat()


def test_a_second_lab_runs_beside_the_first_and_leaves_nothing(well: Lab) -> None:
    engine = well.ground.engine
    with boot_lab() as other:
        assert other.container("host") != well.container("host")
        assert other.host("systemctl", "is-system-running").out == "running\n"
        place, project = other.ground.home, other.ground.project
    assert containers(engine, project) == []
    assert not place.exists()
    assert well.await_beat().ok


def test_what_a_killed_run_left_is_swept_and_what_lives_is_not(well: Lab, tmp_path: Path) -> None:
    stale = tmp_path / "hostsynclabstale"
    stale.mkdir()
    (stale / "lock").touch()
    engine = well.ground.engine
    label = f"com.docker.compose.project={stale.name}"
    engine.docker("create", f"--label={label}", "--network=none", well.ground.images.world, "true")
    sweep(engine, tmp_path)
    sweep(engine, well.ground.home.parent)
    assert containers(engine, stale.name) == []
    assert not stale.exists()
    assert len(containers(engine, well.ground.project)) == 4


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Path]:
    """A directory for an engine, whose disk is let go of in any case."""
    yield tmp_path
    disk.detach(tmp_path)


def test_an_engine_s_disk_keeps_what_is_on_it(drive: Path) -> None:
    place = disk.attach(drive)
    assert place.is_mount()
    (place / "kept").write_text("image")
    assert disk.attach(drive) == place
    disk.detach(drive)
    assert not place.is_mount()
    assert (disk.attach(drive) / "kept").read_text() == "image"


def test_an_engine_s_disk_that_cannot_be_read_is_made_anew(drive: Path) -> None:
    (drive / "disk.img").write_bytes(b"no filesystem" * 1000)
    place = disk.attach(drive)
    assert place.is_mount()
    assert [path.name for path in place.iterdir()] == ["lost+found"]
