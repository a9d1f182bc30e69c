"""kubelet authenticates by every source, through upgrades, a roll back and without the daemon.

Tokens live for some seconds here, so that each is renewed several times on either side of a switch.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from e2e.kubeconfig import SERVER
from e2e.lab import MACHINE_ROOT, Lab
from e2e.node import SLOT_ROOT, Node, longest_gap
from e2e.records import Exchange
from e2e.releases import CRASH, Releases
from e2e.world.conduct import Conduct
from e2e.world.identity import SERVICE_PRINCIPAL, TENANT
from e2e.world.pki import make_signing_key, private_pem

pytestmark = pytest.mark.lab

LIFETIME = 8
HEARTBEAT_SECONDS = 10.0
"""What kubelet gives one renewal."""
CLIENT = ("--login", "spn", "--client-id", SERVICE_PRINCIPAL.client_id, "--tenant-id", TENANT)
SECRET_FILE = "/etc/hostsync/client-secret"
CERTIFICATE_FILE = "/etc/hostsync/client-certificate"
SOURCES = {
    "msi": ("--login", "msi"),
    "secret": (*CLIENT, "--client-secret-file", SECRET_FILE),
    "certificate": (*CLIENT, "--client-certificate", CERTIFICATE_FILE),
}


@pytest.fixture(scope="module")
def node(lab: Lab, releases: Releases) -> Iterator[Node]:
    """A new host with 1.0.0, whose machine has the service principal's credentials."""
    node = Node(lab, releases)
    node.install()
    key = make_signing_key()
    certificate = certificate_of(key)
    (lab.ground.world / "client.pem").write_bytes(certificate)
    lab.write(f"{MACHINE_ROOT}{SECRET_FILE}", f"{SERVICE_PRINCIPAL.secret}\n", 0o600)
    lab.write(f"{MACHINE_ROOT}{CERTIFICATE_FILE}", certificate + private_pem(key), 0o600)
    for service in ("imds", "entra"):
        lab.tell(service, Conduct(token_lifetime=LIFETIME))
    yield node
    for service in ("imds", "entra"):
        lab.tell(service)


@pytest.fixture(autouse=True)
def no_beat_fails(node: Node) -> Iterator[None]:
    """Every beat renews kubelet's Lease, and none is later than kubelet's own time-out.

    A beat that gets a new token may take over a second where the machine below is busy, and the
    next second then has none: unlike with cached tokens, holes in the numbers say nothing here.
    """
    begun = node.moment()
    yield
    beats = node.beats_since(begun)
    assert [beat for beat in beats if not beat.ok] == []
    assert longest_gap(beats) < HEARTBEAT_SECONDS


def certificate_of(key: rsa.RSAPrivateKey) -> bytes:
    """A certificate of its own for `key`, PEM."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def use(node: Node, source: str) -> None:
    """Have kubelet authenticate by `source`, with the kubeconfig that hostsync writes inside.

    Nothing is left of tokens that were issued to live for a day.
    """
    where = ("--server", SERVER, "--ca-file", "/etc/ssl/certs/ca-certificates.crt", "--replace")
    program = f"{SLOT_ROOT}/current/bin/hostsync"
    node.lab.machine(program, "kubeconfig", *where, "--", *SOURCES[source])
    node.lab.machine("/bin/rm", "-rf", "/run/hostsync/credential")


def issued(node: Node, source: str) -> Callable[[], tuple[Exchange, ...]]:
    """What gives the tokens issued from now on by the endpoint that `source` asks."""
    log = node.lab.imds_log if source == "msi" else node.lab.entra_log
    before = len(log())
    return lambda: tuple(each for each in log()[before:] if each.token and each.verb != "HEAD")


def await_renewal(node: Node, source: str) -> None:
    """Return once a token got from now on was used; each beat asks the plugin."""
    tokens = issued(node, source)
    node.lab.await_beat(lambda beat: beat.ok and bool(tokens()), timeout=2 * LIFETIME)
    node.lab.await_beat()
    fresh = {each.token for each in tokens()}
    assert fresh & {each.token for each in node.lab.api_log()}


@pytest.mark.parametrize(("number", "source"), list(enumerate(SOURCES, 1)))
def test_kubelet_authenticates_before_and_after_an_upgrade_and_without_the_daemon(
    node: Node, number: int, source: str
) -> None:
    use(node, source)
    await_renewal(node, source)
    version = f"1.{number}.0"
    assert node.upgrade(node.releases.good(version)).code == 0
    await_renewal(node, source)
    assert node.lab.await_beat().release == version
    node.lab.host("systemctl", "stop", "hostsync.service")
    await_renewal(node, source)
    node.lab.host("systemctl", "start", "hostsync.service")


@pytest.mark.parametrize("source", ["secret", "certificate"])
def test_kubelet_authenticates_through_a_roll_back(node: Node, source: str) -> None:
    use(node, source)
    number = list(SOURCES).index(source)
    done = node.upgrade(node.releases.broken_daemon(f"2.{number}.0", CRASH))
    assert done.code == 5
    await_renewal(node, source)


def test_a_rotated_secret_reaches_kubelet_at_once_and_a_wrong_one_is_named(node: Node) -> None:
    use(node, "secret")
    # From here on a token lasts for a day: only the rotation can be the cause of another one.
    node.lab.tell("entra")
    await_renewal(node, "secret")
    explained = node.lab.machine(
        "/usr/local/bin/hostsync-credential", "explain", "--server-id", "s", *SOURCES["secret"]
    ).out
    assert f"secret file {SECRET_FILE}, readable" in explained
    assert "seals agree" in explained
    node.lab.write(f"{MACHINE_ROOT}{SECRET_FILE}.new", "wrong", 0o600)
    script = "/usr/local/bin/hostsync-credential check --server-id s"
    words = " ".join(SOURCES["secret"]).replace(SECRET_FILE, f"{SECRET_FILE}.new")
    refused = node.lab.machine("/bin/sh", "-c", f"{script} {words}", check=False)
    assert refused.code == 5
    assert "AADSTS7000215" in refused.err
    assert f"{SECRET_FILE}.new" in refused.err
    tokens = issued(node, "secret")
    node.lab.host("touch", f"{MACHINE_ROOT}{SECRET_FILE}")
    node.lab.await_beat(lambda beat: beat.ok and bool(tokens()), timeout=5)


def test_no_secret_is_in_any_journal_or_kubeconfig(node: Node) -> None:
    kept = json.dumps([each.message for each in node.lab.journal()])
    inside = json.dumps([each.message for each in node.lab.journal(in_machine=True)])
    kubeconfig = node.lab.host("cat", f"{MACHINE_ROOT}/var/lib/kubelet/kubeconfig").out
    script = "ls /run/hostsync/credential; cat /proc/*/cmdline; true"
    cached = node.lab.machine("/bin/sh", "-c", script)
    for said in (kept, inside, kubeconfig, cached.out):
        assert SERVICE_PRINCIPAL.secret not in said
        assert "PRIVATE KEY" not in said
