"""A fleet that loses its API server comes back spread out: real watches, played time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.board import Board
from hostsync.operations.cluster import Seen
from hostsync.operations.operation import Operation
from hostsync.operations.watching import Means, Watching

WATCHES = 400
AWAY = 5.0
"""For so many seconds from the start nobody is answered."""


@dataclass
class Server:
    """The API server of a fleet: cuts every watch, and comes back without its past."""

    now: float = 0.0
    asked: list[float] = field(default_factory=list)

    def take(self) -> None:
        if self.now < AWAY:
            raise ClusterError(ClusterCause.UNREACHABLE, "the API is away")
        self.asked.append(self.now)

    def busiest_second(self) -> int:
        return max(Counter(int(at) for at in self.asked).values())


class Host:
    """The cluster as one host sees it, who had listed before the server went away."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._versions = iter(("before", "after"))
        self.is_back = False

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        version = next(self._versions)
        if version == "after":
            self._server.take()
        return (), version

    def watch(self, field_selector: str, version: str, seconds: float) -> Iterator[Seen]:
        self._server.take()
        if version == "before":
            raise ClusterError(ClusterCause.EXPIRED, "too old a version")
        self.is_back = True
        return iter(())

    def get(self, name: str) -> Operation | None:
        raise NotImplementedError

    def patch_status(self, name: str, patch: Mapping[str, object]) -> Operation:
        raise NotImplementedError

    def apply_status(self, name: str, owner: str, wanted: Mapping[str, object]) -> Operation:
        raise NotImplementedError

    def delete(self, operation: Operation) -> None:
        raise NotImplementedError

    def node_labels(self, node: str) -> Mapping[str, str]:
        raise NotImplementedError


def outlive(chance: Callable[[], float]) -> Server:
    """Have all watches lose the server at the same instant, and live until each is back."""
    server = Server()
    hosts = [Host(server) for _ in range(WATCHES)]
    watches = [Watching(host, Board(), "", Means(chance=chance)) for host in hosts]
    turns = [(0.0, number) for number in range(WATCHES)]
    while turns:
        server.now, number = heapq.heappop(turns)
        pause = watches[number].turn()
        assert pause is not None
        if not hosts[number].is_back:
            heapq.heappush(turns, (server.now + pause, number))
    return server


def test_a_fleet_comes_back_from_an_outage_without_a_herd() -> None:
    spread = outlive(random.Random(1).random)
    in_step = outlive(lambda: 0.5)
    assert len(spread.asked) == len(in_step.asked) == 3 * WATCHES
    assert 5 * spread.busiest_second() < in_step.busiest_second()
