"""A Kubernetes API server in this process, for unit tests and benchmarks.

    with Cluster(tmp_path) as cluster:
        cluster.define(DEFINITION)
        cluster.create("widgets", "one", {"machineRef": "kube1"})
        client = lightkube.Client(KubeConfig.from_file(cluster.kubeconfig).get())

`python -m e2e.world.cluster DIRECTORY` serves in a process of its own until its input ends; it
prints the path of the kubeconfig once it answers.
"""

import base64
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from e2e.records import Exchange, parse_exchanges
from e2e.world.api import KubeApi
from e2e.world.authentication import by_certificate, by_table, first_of
from e2e.world.conduct import GOOD, Conduct, Instructions, instruct
from e2e.world.documents import Document, encode, text
from e2e.world.kube import furnish, server_tls
from e2e.world.pki import Authority, make_authority
from e2e.world.registry import Registry, now_text
from e2e.world.resources import DEFINITIONS, Key
from e2e.world.rules import Origin
from e2e.world.watching import Periods
from e2e.world.web import RequestLog, Website

LOOPBACK = "127.0.0.1"
USERS = {"token-of-hostsync": "hostsync", "token-of-another": "another"}


class Cluster:
    """An API server over TLS on a loopback port of its own; its objects outlive its stops.

    `registry` is at hand for arranging and asserting, whether the server runs or not, and
    `kubeconfig` is the path of a file that makes a client the user hostsync, by bearer token.
    `users` maps the tokens that are accepted to user names.
    """

    def __init__(
        self,
        home: Path,
        *,
        registry: Registry | None = None,
        users: Mapping[str, str] = USERS,
        periods: Periods | None = None,
    ) -> None:
        self.registry = furnish(registry or Registry())
        self._home = home
        self._users = dict(users)
        self._authority: Authority = make_authority()
        self._api = KubeApi(
            self.registry, first_of(by_table(self._users), by_certificate), periods or Periods()
        )
        home.mkdir(parents=True, exist_ok=True)
        (home / "server.pem").write_bytes(self._authority.issue(("localhost",), (LOOPBACK,)))
        (home / "ca.pem").write_bytes(self._authority.pem)
        self._port = 0
        self._site: Website | None = None
        self._thread = threading.Thread()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()
        self.registry.store.close()

    @property
    def url(self) -> str:
        """The server's address; its port stays the same from the first start on."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def is_running(self) -> bool:
        """Whether the server listens."""
        return self._site is not None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the first of the users, who shows a token."""
        token, user = next(iter(self._users.items()))
        return self._kubeconfig(user, {"token": token})

    def start(self) -> None:
        """Listen; returns once connections are taken.

        After a stop the port and the objects are those of before. As with a real server, how they
        changed is forgotten: a watch or a page of an older version gets 410.
        """
        if self._site is not None:
            raise RuntimeError("the cluster is running already")
        tls = server_tls(self._home / "server.pem", self._home / "ca.pem")
        log, orders = RequestLog(self._log), Instructions(self._home / "kube.json")
        if self._port:
            self.registry.store.forget()
        self._site = Website((LOOPBACK, self._port), self._api, log, orders, tls)
        self._port = self._site.server_port
        self._thread = threading.Thread(
            target=self._site.serve_forever, kwargs={"poll_interval": 0.02}, name="kube"
        )
        self._thread.start()

    def stop(self) -> None:
        """Cut all connections, as a kill does, and refuse new ones; returns once that is so."""
        if self._site is None:
            raise RuntimeError("the cluster is stopped already")
        self._site.shutdown()
        self._thread.join()
        self._site.server_close()
        self._site.hang_up(self.registry.store.end_watches)
        self._site = None

    def settle(self) -> None:
        """Return once the server has closed every connection that its clients closed.

        A test that counts descriptors wants that of a cluster which outlives it.
        """
        if self._site is not None:
            self._site.settle()

    def tell(self, conduct: Conduct = GOOD) -> None:
        """Have the server behave so from its next request on."""
        instruct(self._home / "kube.json", conduct)

    def requests(self) -> tuple[Exchange, ...]:
        """Return what the server was asked since it was made, oldest first.

        A watch is there from its first byte on.
        """
        return parse_exchanges(self._log.read_text()) if self._log.exists() else ()

    def define(self, definition: Document) -> None:
        """Store a CustomResourceDefinition; its kinds are served when this returns.

        Raises RefusalError where it exists or is not valid.
        """
        key = Key(resource=DEFINITIONS, name=text(definition, "metadata", "name"))
        self.registry.create(key, definition)

    def create(self, plural: str, name: str, spec: Document, **more: Document) -> Document:
        """Store an object with this spec, and `more` top-level fields; return what is stored.

        A status among them is stored too. Raises RefusalError as a client would be told.
        """
        key = self.at(plural, name)
        status = more.pop("status", None)
        metadata = more.pop("metadata", {}) | {"name": name}
        wanted: Document = {
            "apiVersion": key.resource.api_version,
            "kind": key.resource.kind,
            "metadata": metadata,
            "spec": spec,
        }
        made = self.registry.create(key, wanted | dict(more))
        return made if status is None else self.set_status(plural, name, status)

    def get(self, plural: str, name: str) -> Document:
        """Return an object; raises RefusalError (404)."""
        return self.registry.get(self.at(plural, name))

    def set_status(self, plural: str, name: str, status: Document) -> Document:
        """Replace an object's status, as another of its writers would; return the object."""
        origin = Origin(manager="arranged", subresource="status", now=now_text())
        change: Document = {"status": status}
        return self.registry.change(self.at(plural, name), lambda held: held | change, origin)

    def delete(self, plural: str, name: str) -> None:
        """Remove an object; raises RefusalError (404)."""
        self.registry.delete(self.at(plural, name))

    def at(self, plural: str, name: str = "", namespace: str = "") -> Key:
        """Return where an object of a kind lives, or a collection; raises LookupError."""
        for kind in self.registry.kinds():
            if kind.plural == plural:
                return Key(resource=kind, namespace=namespace, name=name)
        raise LookupError(f"no kind is served as {plural}")

    def listed(self, plural: str) -> dict[str, Document]:
        """Return the objects of a kind by name; of a kind that is not served, LookupError."""
        found, _ = self.registry.store.read(self.at(plural))
        return {key.name: self.registry.get(key) for key, _ in found}

    def certificate_kubeconfig(self, user: str) -> Path:
        """Return the path of a kubeconfig that makes a client `user` by a client certificate."""
        pem = base64.b64encode(self._authority.issue_client(user)).decode()
        data: Document = {"client-certificate-data": pem, "client-key-data": pem}
        return self._kubeconfig(user, data)

    @property
    def _log(self) -> Path:
        return self._home / "kube.jsonl"

    def _kubeconfig(self, user: str, credentials: Document) -> Path:
        authority = base64.b64encode(self._authority.pem).decode()
        named: Document = {"server": self.url, "certificate-authority-data": authority}
        document: Document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stub", "cluster": named}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": user}}],
            "current-context": "stub",
        }
        way = next(iter(credentials))
        path = self._home / f"kubeconfig-{user}-{way}"
        path.touch(mode=0o600)
        path.write_bytes(encode(document))
        return path


def main() -> None:
    """Serve until the standard input ends."""
    with Cluster(Path(sys.argv[1])) as cluster:
        sys.stdout.write(f"{cluster.kubeconfig}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
