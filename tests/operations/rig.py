"""A played host with its desk, against the real client and the stub of the API, step by step.

What threads do in the daemon is done here in turns: the board is filled by a list, the desk looks
once, and the carrier carries out what it was given. So every order of events can be had.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from e2e.world.cluster import Cluster as Stub
from e2e.world.documents import Document
from hostsync.activation.host import Host
from hostsync.activation.trial import settle
from hostsync.membership import Membership
from hostsync.operations.board import Board
from hostsync.operations.carrier import Carrier
from hostsync.operations.cluster import Cluster
from hostsync.operations.demand import Demand, Reboot, Say, Upgrade
from hostsync.operations.desk import Desk, Office
from hostsync.operations.operation import Operation
from hostsync.operations.rebooting import reboot
from hostsync.operations.reboots import Restarts
from hostsync.operations.upgrading import upgrade
from hostsync.state import HistoryLine
from hostsync.trust import Trust
from hostsync.workers import Machines
from tests.hostsync.intake import LOOPBACK
from tests.hostsync.release.web_server import Server
from tests.hostsync.world import Killed, World
from tests.operations.specimens import CANARY, ME, a_document

Play = Callable[[Host], Host]
"""Gives a host other ports than the world's own."""


def as_it_is(host: Host) -> Host:
    return host


@contextmanager
def killed_once_recorded(world: World) -> Iterator[None]:
    """The process dies at the first change after the record of its order was stored."""
    count, record = world.disk.count, world.host().record.path

    def kill(verb: str, path: Path) -> None:
        if record.exists():
            raise Killed
        count(verb, path)

    world.disk.count = kill  # type: ignore[method-assign]
    yield
    world.disk.count = count  # type: ignore[method-assign]


def host_of(world: World, play: Play = as_it_is, me: Membership = ME) -> Host:
    """The host as a daemon that takes orders sees it; clear text on loopback is allowed."""
    host = world.host()
    settings = replace(
        host.config, membership=me, trust=Trust(insecure_hosts=LOOPBACK),
        machines=Machines(root=world.top / "machines"),
    )  # fmt: skip
    return play(replace(host, config=settings))


@dataclass
class Rig:
    """One life of a daemon; another one over the same world and stub is a restarted daemon."""

    world: World
    stub: Stub
    kube: Cluster
    me: Membership = ME
    play: Play = as_it_is
    pauses: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = host_of(self.world, self.play, self.me)
        self.board = Board()
        restarts = Restarts(self.host.config.state_root, self.host.fs)
        self.carrier = Carrier(self._act, self.board.nudge, self.host.clock)
        self.restarts = restarts
        self.desk = Desk(
            Office(
                config=self.host.config, me=self.me, hosts=(self.host,), cluster=self.kube,
                board=self.board, carrier=self.carrier, restarts=restarts,
            )
        )  # fmt: skip

    def _act(self, operation: Operation, demand: Demand, say: Say) -> None:
        match demand:
            case Upgrade():
                upgrade((self.host,), self.host, operation, demand, say)
            case Reboot():
                reboot((self.host,), self.restarts, operation, demand, say)

    def order(self, name: str = "op", /, **spec: object) -> Document:
        """What a person applies; the object as it is stored."""
        document = json.loads(json.dumps(a_document(name, **spec)))
        return self.stub.registry.create(self.stub.at("machineoperations", name), document)

    def see(self) -> None:
        """The watches have caught up."""
        for scope in (f"spec.machineRef={self.me.machine}", "spec.machineRef="):
            self.board.replace(scope, self.kube.list(scope)[0])

    def look(self) -> None:
        """The desk looks once."""
        self.pauses.append(self.desk.turn())

    def work(self) -> int:
        """The carrier carries out all that it was given; how many that were."""
        count = 0
        while True:
            try:
                given = self.carrier._next.get_nowait()
            except queue.Empty:
                return count
            self.carrier.turn(*given)
            count += 1

    def round(self) -> int:
        """Watches, desk and carrier each once, and the desk again; how many were begun."""
        self.see()
        self.look()
        count = self.work()
        self.see()
        self.look()
        return count

    def judge(self) -> HistoryLine | None:
        """The judge brings the order under trial to its end."""
        return settle(self.world.host())

    def status(self, name: str = "op") -> dict[str, Any]:
        found: dict[str, Any] = self.stub.registry.get(self.stub.at("machineoperations", name))
        status: dict[str, Any] = found.get("status", {})
        return status

    def phase(self, name: str = "op") -> str:
        return str(self.status(name).get("phase", ""))

    def reason(self, name: str = "op") -> str:
        (condition,) = self.status(name)["conditions"]
        return str(condition["reason"])


@dataclass
class Depot:
    """Serves releases of the played agent on loopback, with a secret in each URL."""

    world: World
    servers: dict[str, Server] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def parameters(self, version: str, **more: str) -> dict[str, str]:
        url = self.servers[version].url() + f"?sig={CANARY}"
        return {"downloadURL": url, "sha256": self.digests[version], **more}

    def asked(self, version: str) -> int:
        return len(self.servers[version].asked)


Daemon = Callable[[], Rig]
"""Starts a daemon, as often as a test likes."""
