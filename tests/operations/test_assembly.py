"""The threads together: a kind that appears later, an order, an outage, a verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.world.cluster import Cluster as Stub
from hostsync.operations.assembly import assemble
from hostsync.operations.crew import Crew
from hostsync.operations.kubernetes import KubernetesCluster
from hostsync.operations.watching import Means
from tests.hostsync.test_transaction import current_version
from tests.hostsync.world import World
from tests.operations.conftest import a_definition
from tests.operations.rig import Depot, Rig, host_of
from tests.operations.specimens import ME

pytestmark = pytest.mark.slow

PATIENCE = 20.0


def wait_for(crew: Crew, condition: Callable[[], bool]) -> None:
    """Return once it holds; the threads are about to bring that about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        crew.check()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stub]:
    """An API server that does not know the kind."""
    with Stub(tmp_path / "bare") as stub:
        yield stub


class Ended(BaseException):
    """The test is over: a watch is to end, and nobody is to take it for trouble."""


@pytest.fixture
def kube(bare: Stub) -> Iterator[KubernetesCluster]:
    client = KubernetesCluster(bare.kubeconfig, None)
    yield client
    client.close()


@pytest.fixture
def crew(bare: Stub, kube: KubernetesCluster, world: World) -> Iterator[Crew]:
    over = threading.Event()
    resting: set[int] = set()

    def pause(seconds: float) -> None:
        if over.wait(min(seconds, 0.05)):
            resting.add(threading.get_ident())
            raise Ended

    crew = assemble((host_of(world),), ME, kube, Means(pause=pause))
    crew.start()
    yield crew
    over.set()
    bare.stop()
    deadline = time.monotonic() + PATIENCE
    while len(resting) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(resting) == 2


def test_an_order_is_found_carried_out_and_told_of_through_an_outage(
    crew: Crew, bare: Stub, kube: KubernetesCluster, world: World, depot: Depot
) -> None:
    def has_told_trouble() -> bool:
        return any("crd.yaml" in event.detail for event in list(world.events))

    wait_for(crew, has_told_trouble)
    bare.define(a_definition())
    rig = Rig(world, bare, kube)
    rig.order(parameters=depot.parameters("1.1.0"))
    wait_for(crew, lambda: "switched" in rig.status().get("message", ""))
    bare.stop()
    rig.judge()
    assert current_version(world) == "1.1.0"
    bare.start()
    wait_for(crew, lambda: rig.phase() == "Complete")
    rig.order("second", operationKind="HostReplace", ttlSecondsAfterFinished=3600)
    wait_for(crew, lambda: rig.phase("second") == "Failed")
    assert rig.reason("second") == "UnsupportedOperation"
    assert depot.asked("1.1.0") == 1
    told = [event.detail for event in world.events if event.act == "watch"]
    assert any("answers" in detail for detail in told)
