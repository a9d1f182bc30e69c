"""The server under test: the stub, or the one that HOSTSYNC_KUBE_CONTRACT names a kubeconfig of."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.world.cluster import Cluster
from e2e.world.documents import text
from e2e.world.watching import Periods
from tests.e2e_world.contract.client import Client
from tests.e2e_world.contract.kinds import DEFINITIONS, GROUP, Widgets, definition, fresh

REAL = os.environ.get("HOSTSYNC_KUBE_CONTRACT", "")
SERVED_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Who is asked, and how many seconds of watching show a bookmark for certain."""

    client: Client
    bookmark_seconds: int
    settle: Callable[[], None] = lambda: None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server to check, with nothing of the contract's group in it."""
    if REAL:
        yield Server(client=Client(Path(REAL)), bookmark_seconds=90)
        return
    home = tmp_path_factory.mktemp("cluster")
    with Cluster(home, periods=Periods(bookmark=0.1)) as cluster:
        client = Client(cluster.kubeconfig)
        yield Server(client=client, bookmark_seconds=1, settle=cluster.settle)


@pytest.fixture(scope="session")
def widgets(server: Server) -> Iterator[Widgets]:
    """A kind, served."""
    with defined(server.client, fresh("widgets").replace("-", ""), "Widget") as found:
        server.settle()
        yield found


@contextmanager
def defined(client: Client, plural: str, kind: str) -> Iterator[Widgets]:
    """Define a kind, yield it once it is served, and remove it."""
    unique = kind + plural.removeprefix(kind.lower()).capitalize()
    made = client.call("POST", DEFINITIONS, definition(plural, unique))
    assert made.status == 201, made
    found = Widgets(client=client, plural=plural, kind=unique)
    try:
        until(lambda: client.get(found.path).status == 200)
        yield found
    finally:
        client.call("DELETE", f"{DEFINITIONS}/{plural}.{GROUP}")
        until(lambda: client.get(f"{DEFINITIONS}/{plural}.{GROUP}").status == 404)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what a real server does in its own time."""
    deadline = time.monotonic() + SERVED_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "the server did not come so far"
        time.sleep(0.05)


def condition(document: object, name: str) -> str:
    """Return the status of a condition, "" where there is none."""
    listed = document if isinstance(document, list) else []
    return next((text(each, "status") for each in listed if text(each, "type") == name), "")
