"""The API server in this process, clients of it, and a played host that takes its orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.crd import definition
from e2e.world.cluster import Cluster as Stub
from e2e.world.documents import Document
from hostsync.model import SlotKind
from hostsync.operations.kubernetes import KubernetesCluster
from tests.hostsync.intake import archive_of, digest_of
from tests.hostsync.release.web_server import answer, serving
from tests.hostsync.world import World, installed, make_world
from tests.operations.rig import Daemon, Depot, Rig


def a_definition() -> Document:
    """The definition of the kind, as `kubectl apply` sends it."""
    made: Document = json.loads(json.dumps(definition()))
    return made


Connect = Callable[[Path | None], KubernetesCluster]


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    """An API server that knows MachineOperations."""
    with Stub(tmp_path / "kube") as running:
        running.define(a_definition())
        yield running


@pytest.fixture
def connect(stub: Stub) -> Iterator[Connect]:
    """Makes clients of a kubeconfig, which are closed at the end."""
    opened: list[KubernetesCluster] = []

    def make(kubeconfig: Path | None) -> KubernetesCluster:
        opened.append(KubernetesCluster(kubeconfig, None))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def kube(stub: Stub, connect: Connect) -> KubernetesCluster:
    """A client of the stub, by bearer token."""
    return connect(stub.kubeconfig)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return installed(make_world(tmp_path / "host", SlotKind.BUNDLE))


@pytest.fixture
def depot(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Depot]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    good, bad = archive_of(world, "1.1.0"), archive_of(world, "1.2.0", "crash")
    depot = Depot(world)
    with serving(answer(body=good)) as first, serving(answer(body=bad)) as second:
        depot.servers = {"1.1.0": first, "1.2.0": second}
        depot.digests = {"1.1.0": digest_of(good).hex, "1.2.0": digest_of(bad).hex}
        yield depot


@pytest.fixture
def daemon(world: World, stub: Stub, kube: KubernetesCluster) -> Daemon:
    """Starts a daemon, as often as a test likes."""
    return lambda: Rig(world, stub, kube)


@pytest.fixture
def rig(daemon: Daemon) -> Rig:
    return daemon()
