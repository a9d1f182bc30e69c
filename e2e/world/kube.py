"""A Kubernetes API server over TLS; it believes what the keys that Entra publishes verify."""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.world.api import KubeApi
from e2e.world.authentication import by_certificate, by_token, first_of
from e2e.world.azure import STATE
from e2e.world.conduct import Instructions
from e2e.world.documents import Document, decode
from e2e.world.entra import KEYS_PATH
from e2e.world.identity import AKS_SERVER, AUTHORITY_HOST, ISSUER
from e2e.world.persistence import OBJECTS, Journal
from e2e.world.registry import Registry
from e2e.world.resources import NAMESPACES, NODES, Key
from e2e.world.store import Store
from e2e.world.tokens import Expectation, TokenRefusedError, key_id_of, read_key_set, verify
from e2e.world.web import RequestLog, Website

ADDRESS = ("127.0.0.1", 6443)
NODE = "kube1"
NAMESPACE_NAMES = ("default", "kube-node-lease", "kube-system")
FETCH_PAUSE = 1.0

Keys = Mapping[str, rsa.RSAPublicKey]


class Issuer:
    """Verifies tokens; fetches the issuer's keys when it meets an unknown one."""

    def __init__(self, fetch: Callable[[], Document], clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Keys = {}
        self._fetched = float("-inf")

    def authenticate(self, token: str) -> Document:
        """Return the claims of `token`; raises TokenRefusedError."""
        expected = Expectation(issuer=ISSUER, audiences=(AKS_SERVER,))
        return verify(token, self._keys_with(key_id_of(token)), expected, self._clock())

    def _keys_with(self, key_id: str) -> Keys:
        with self._lock:
            # At most once a second, so that forged tokens cannot turn into load on the issuer.
            if key_id not in self._keys and self._clock() >= self._fetched + FETCH_PAUSE:
                self._fetched = self._clock()
                try:
                    self._keys = read_key_set(self._fetch())
                except (OSError, http.client.HTTPException, ValueError) as error:
                    raise TokenRefusedError(f"no keys from the issuer: {error}") from error
            return self._keys


def fetch_keys(authority: Path) -> Document:
    """Return the key set that Entra publishes, over TLS that `authority` vouches for."""
    tls = ssl.create_default_context(cafile=str(authority))
    line = http.client.HTTPSConnection(AUTHORITY_HOST, 443, timeout=5, context=tls)
    try:
        line.request("GET", KEYS_PATH)
        return decode(line.getresponse().read())
    finally:
        line.close()


def furnish(registry: Registry) -> Registry:
    """Add the node and the namespaces that a cluster has from the start, where they are missing."""
    labels: Document = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}
    node: Document = {"metadata": {"labels": labels}, "spec": {}}
    wanted = {Key(resource=NAMESPACES, name=name): Document() for name in NAMESPACE_NAMES}
    for key, document in (wanted | {Key(resource=NODES, name=NODE): node}).items():
        if registry.store.find(key) is None:
            registry.create(key, document)
    return registry


def server_tls(certificate: Path, authority: Path) -> ssl.SSLContext:
    """Return the server's side of TLS, which asks for a client certificate but needs none.

    One that `authority` did not sign ends the handshake, where a real server would answer 401.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.load_verify_locations(authority)
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


def main() -> None:
    """Serve until killed; a server started again has the objects of the one before."""
    issuer = Issuer(lambda: fetch_keys(STATE / "ca.pem"), time.time)
    registry = furnish(Registry(Store(journal=Journal(STATE / OBJECTS))))
    api = KubeApi(registry, first_of(by_token(issuer.authenticate), by_certificate))
    log, orders = RequestLog(STATE / "kube.jsonl"), Instructions(STATE / "kube.json")
    tls = server_tls(STATE / "server.pem", STATE / "ca.pem")
    Website(ADDRESS, api, log, orders, tls).serve_forever()


if __name__ == "__main__":
    main()
