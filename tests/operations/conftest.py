"""The stub of the API server over TLS, with the definition of the kind and a client of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.crd import definition
from e2e.world.cluster import Cluster as Stub
from e2e.world.documents import Document
from hostsync.operations.kubernetes import KubernetesCluster


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
