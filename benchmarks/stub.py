"""The API stub in a process of its own, with a meter on its connections.

    python -m benchmarks.stub HOME PORT field|client

Serves the objects of a journal in HOME, so that one that was killed is started again with all of
them. Each line on its input is an `Order`, answered by a `Count`. The bytes are the kernel's own
count of what TCP carried (TCP_INFO): TLS is in them, retransmissions are not.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from deploy import crd
from e2e.world.api import KubeApi
from e2e.world.authentication import by_table
from e2e.world.conduct import Instructions
from e2e.world.documents import Document, decode, encode, section, text
from e2e.world.kube import furnish, server_tls
from e2e.world.persistence import Journal
from e2e.world.registry import Registry
from e2e.world.resources import DEFINITIONS, Key
from e2e.world.store import Store
from e2e.world.web import Accepted, RequestLog, Website
from hostsync.operations.operation import API_VERSION, GROUP, KIND, PLURAL, TERMINAL, VERSION

LOG = "kube.jsonl"
TOKEN = "token-of-the-fleet"
_BYTES_ACKED = 120
"""Where tcp_info has tcpi_bytes_acked (u64), followed by tcpi_bytes_received; Linux 4.1."""


class Count(msgspec.Struct, kw_only=True):
    """What the stub has seen since it was started."""

    watchers: int
    sent: int
    """Bytes that clients acknowledged."""
    received: int
    connections: int
    """How many were taken, in all."""
    ended: int
    """Operations with a terminal phase."""


class Order(msgspec.Struct, kw_only=True):
    """A line of the input: the machines that are given an operation each, if any."""

    machines: list[str] = []


class MeteredWebsite(Website):
    """A website that knows how many bytes went over its connections."""

    request_queue_size = 4096

    def __init__(self, home: Path, port: int, api: KubeApi, tls: ssl.SSLContext) -> None:
        self._meter = threading.Lock()
        self._live: set[socket.socket] = set()
        self._over = (0, 0)
        self.connections = 0
        log, orders = RequestLog(home / LOG), Instructions(home / "kube.json")
        super().__init__(("127.0.0.1", port), api, log, orders, tls)

    def process_request(self, request: Accepted, client_address: object) -> None:
        """See Website."""
        if isinstance(request, socket.socket):
            with self._meter:
                self._live.add(request)
                self.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Accepted) -> None:
        """See Website."""
        if isinstance(request, socket.socket):
            with self._meter:
                self._live.discard(request)
                self._over = _sum((self._over, _payload(request)))
        super().shutdown_request(request)

    def bytes(self) -> tuple[int, int]:
        """Bytes sent and received, on all connections there were."""
        with self._meter:
            return _sum((self._over, *map(_payload, self._live)))


def _payload(connection: socket.socket) -> tuple[int, int]:
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return (0, 0)
    acknowledged, received = struct.unpack_from("=QQ", told, _BYTES_ACKED)
    return acknowledged, received


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(sent for sent, _ in pairs), sum(received for _, received in pairs)


def definition(*, selectable: bool) -> Document:
    """The CRD as it is deployed, or as a server without selectable fields keeps it."""
    document = decode(encode(msgspec.to_builtins(crd.definition())))
    if not selectable:
        versions = section(document, "spec")["versions"]
        assert isinstance(versions, list)
        for version in versions:
            assert isinstance(version, dict)
            version.pop("selectableFields")
    return document


def define(registry: Registry, *, selectable: bool) -> None:
    """Store the definition, unless the journal had it."""
    wanted = definition(selectable=selectable)
    key = Key(resource=DEFINITIONS, name=text(wanted, "metadata", "name"))
    if registry.store.find(key) is None:
        registry.create(key, wanted)


def order(registry: Registry, machine: str) -> None:
    """Make an operation that the desk ends by itself: one of a kind that is not carried out."""
    kind = registry.kind(GROUP, VERSION, PLURAL)
    assert kind is not None
    name = f"power-off-{machine}"
    wanted: Document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"operationKind": "HostPowerOff", "machineRef": machine},
    }
    registry.create(Key(resource=kind, name=name), wanted)


def count(site: MeteredWebsite, registry: Registry) -> Count:
    """Take stock."""
    kind = registry.kind(GROUP, VERSION, PLURAL)
    assert kind is not None
    found, _ = registry.store.read(Key(resource=kind))
    sent, received = site.bytes()
    return Count(
        watchers=registry.store.watchers(),
        sent=sent,
        received=received,
        connections=site.connections,
        ended=sum(text(each, "status", "phase") in TERMINAL for _, each in found),
    )


def main() -> None:
    """Serve until the input ends."""
    home, port, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    registry = furnish(Registry(Store(journal=Journal(home / "objects"))))
    define(registry, selectable=mode == "field")
    tls = server_tls(home / "server.pem", home / "ca.pem")
    site = MeteredWebsite(home, port, KubeApi(registry, by_table({TOKEN: "fleet"})), tls)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    print(site.server_port, flush=True)
    for line in sys.stdin:
        told = msgspec.json.decode(line, type=Order)
        for machine in told.machines:
            order(registry, machine)
        print(msgspec.json.encode(count(site, registry)).decode(), flush=True)


if __name__ == "__main__":
    # Thousands of connections have a thread each: little room, and no race for the interpreter.
    threading.stack_size(512 << 10)
    sys.setswitchinterval(0.1)
    main()
