"""kubelet authenticates by every source, through upgrades, a roll back and without the daemon.

On either side of a switch kubelet has to get a new token: what was cached is taken away.
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
from e2e.node import LEASE_SECONDS, SLOT_ROOT, Node, longest_gap
from e2e.records import Exchange
from e2e.releases import CRASH, Releases
from e2e.world.conduct import Conduct
from e2e.world.identity import SERVICE_PRINCIPAL, TENANT
from e2e.world.pki import make_signing_key, private_pem

pytestmark = pytest.mark.lab

LIFETIME = 20
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
    assert longest_gap(beats) < LEASE_SECONDS


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
    forget_tokens(node)


def issued(node: Node, source: str) -> Callable[[], tuple[Exchange, ...]]:
    """What gives the tokens issued from now on by the endpoint that `source` asks."""
    log = node.lab.imds_log if source == "msi" else node.lab.entra_log
    before = len(log())
    return lambda: tuple(each for each in log()[before:] if each.token and each.verb != "HEAD")


def await_new_token(node: Node, source: str) -> None:
    """Take away what is cached; return once a token got from now on was used."""
    tokens = issued(node, source)
    forget_tokens(node)
    await_use(node, tokens)


def forget_tokens(node: Node) -> None:
    node.lab.machine("/bin/rm", "-rf", "/run/hostsync/credential")


def await_use(node: Node, tokens: Callable[[], tuple[Exchange, ...]]) -> None:
    """Return once a beat used one of those tokens; each beat asks the plugin."""
    node.lab.await_beat(lambda beat: beat.ok and bool(tokens()))
    node.lab.await_beat()
    fresh = {each.token for each in tokens()}
    assert fresh & {each.token for each in node.lab.api_log()}


@pytest.mark.parametrize(("number", "source"), list(enumerate(SOURCES, 1)))
def test_kubelet_authenticates_before_and_after_an_upgrade_and_without_the_daemon(
    node: Node, number: int, source: str
) -> None:
    use(node, source)
    await_new_token(node, source)
    version = f"1.{number}.0"
    assert node.upgrade(node.releases.good(version)).code == 0
    await_new_token(node, source)
    assert node.lab.await_beat().release == version
    node.lab.host("systemctl", "stop", "hostsync.service")
    await_new_token(node, source)
    node.lab.host("systemctl", "start", "hostsync.service")


def test_a_token_is_renewed_before_it_ends_and_kubelet_does_not_notice(node: Node) -> None:
    use(node, "msi")
    await_new_token(node, "msi")
    await_use(node, issued(node, "msi"))


@pytest.mark.parametrize("source", ["secret", "certificate"])
def test_kubelet_authenticates_through_a_roll_back(node: Node, source: str) -> None:
    use(node, source)
    number = list(SOURCES).index(source)
    done = node.upgrade(node.releases.broken_daemon(f"2.{number}.0", CRASH))
    assert done.code == 5
    await_new_token(node, source)


def test_a_rotated_secret_reaches_kubelet_at_once_and_a_wrong_one_is_named(node: Node) -> None:
    use(node, "secret")
    # From here on a token lasts for a day: only the rotation can be the cause of another one.
    node.lab.tell("entra")
    await_new_token(node, "secret")
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
    node.lab.await_beat(lambda beat: beat.ok and bool(tokens()))


def test_no_secret_is_in_any_journal_or_kubeconfig(node: Node) -> None:
    kept = json.dumps([each.message for each in node.lab.journal()])
    inside = json.dumps([each.message for each in node.lab.journal(in_machine=True)])
    kubeconfig = node.lab.host("cat", f"{MACHINE_ROOT}/var/lib/kubelet/kubeconfig").out
    script = "ls /run/hostsync/credential; cat /proc/*/cmdline; true"
    cached = node.lab.machine("/bin/sh", "-c", script)
    for said in (kept, inside, kubeconfig, cached.out):
        assert SERVICE_PRINCIPAL.secret not in said
        assert "PRIVATE KEY" not in said
