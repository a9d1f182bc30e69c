"""A Kubernetes API server over TLS; it believes what the keys that Entra publishes verify."""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.world.api import KubeApi
from e2e.world.azure import STATE
from e2e.world.conduct import Instructions
from e2e.world.documents import Document, decode
from e2e.world.entra import KEYS_PATH
from e2e.world.identity import AKS_SERVER, AUTHORITY_HOST, ISSUER
from e2e.world.resources import NAMESPACES, NODES
from e2e.world.store import Key, Store
from e2e.world.tokens import Expectation, TokenRefusedError, key_id_of, read_key_set, verify
from e2e.world.web import RequestLog, Website

ADDRESS = ("127.0.0.1", 6443)
NODE = "kube1"
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


def furnished_store() -> Store:
    """Return a store with the node and the namespaces that a cluster has from the start."""
    store = Store()
    for namespace in ("default", "kube-node-lease", "kube-system"):
        store.create(Key(resource=NAMESPACES, name=namespace), {})
    labels: Document = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}
    store.create(Key(resource=NODES, name=NODE), {"metadata": {"labels": labels}, "spec": {}})
    return store


def main() -> None:
    """Serve until killed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(STATE / "server.pem")
    issuer = Issuer(lambda: fetch_keys(STATE / "ca.pem"), time.time)
    api = KubeApi(furnished_store(), issuer.authenticate)
    log, orders = RequestLog(STATE / "kube.jsonl"), Instructions(STATE / "kube.json")
    Website(ADDRESS, api, log, orders, tls).serve_forever()


if __name__ == "__main__":
    main()
