"""Keeps the board as the API has it: list in pages, then watch from there, for ever.

A thousand hosts lose their API server in the same instant, so every pause is random over its
whole length: nobody comes back in step with another.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.board import Board
from hostsync.operations.cluster import Change, Cluster

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
KIND_PAUSE = 30.0
"""Mean seconds between looks for a definition that is not there yet."""
WATCH_SECONDS = 300.0


class Trouble(msgspec.Struct, frozen=True):
    """Why the API cannot be watched; None as the cause when it can again."""

    cause: ClusterCause | None
    text: str = ""


def say_nothing(_trouble: Trouble) -> None:
    """Keep it to oneself."""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch needs beside the cluster; tests give a chance and a pause of their own.

    `chance` gives a number between 0 and 1, `pause` lets seconds pass.
    """

    chance: Callable[[], float] = random.random
    pause: Callable[[float], None] = time.sleep
    tell: Callable[[Trouble], None] = say_nothing
    seconds: float = WATCH_SECONDS


class Watching:
    """One watch: a field selector, and where it has come to.

    Where the server cannot select by that field, `else_all` says whether everything is watched
    instead; without it the watch ends, for another one then sees the same.
    """

    def __init__(
        self, cluster: Cluster, board: Board, selector: str, means: Means, *, else_all: bool = True
    ) -> None:
        self._cluster = cluster
        self._board = board
        self._scope = selector
        self._selector = selector
        self._else_all = else_all
        self._means = means
        self._version = ""
        self._failures = 0
        self._expirations = 0
        self._told: Trouble = Trouble(None)

    def run(self) -> None:
        """Watch for ever, or as long as there is something to watch."""
        while (pause := self.turn()) is not None:
            self._means.pause(pause)

    def turn(self) -> float | None:
        """List if need be, watch until that ends, and return how long to pause before the next.

        None when there is nothing to watch any more.
        """
        try:
            self._follow()
        except ClusterError as error:
            return self._after(error)
        self._calm()
        self._expirations = 0
        return self._means.chance()

    def _follow(self) -> None:
        if not self._version:
            operations, version = self._cluster.list(self._selector)
            self._board.replace(self._scope, operations)
            self._version = version
            self._calm()
        # Not all watches of a fleet end at the same time either.
        seconds = self._means.seconds * (0.8 + 0.4 * self._means.chance())
        for seen in self._cluster.watch(self._selector, self._version, seconds):
            self._calm()
            self._expirations = 0
            if seen.operation is not None and seen.change is Change.PUT:
                self._board.put(self._scope, seen.operation)
            elif seen.operation is not None and seen.change is Change.GONE:
                self._board.remove(self._scope, seen.operation.uid)
            self._version = seen.version or self._version

    def _after(self, error: ClusterError) -> float | None:
        match error.cause:
            case ClusterCause.EXPIRED:
                self._version = ""
                longest = min(2.0**self._expirations, LONGEST_PAUSE)
                self._expirations = min(self._expirations + 1, 16)
                return longest * self._means.chance()
            case ClusterCause.NO_FIELD if self._selector:
                # What the server cannot select is selected here: the board's readers compare.
                self._selector = self._version = ""
                return 0.0 if self._else_all else None
            case ClusterCause.NO_KIND:
                self._version = ""
                self._board.replace(self._scope, ())
                self._say(Trouble(error.cause, str(error)))
                return KIND_PAUSE * (0.5 + self._means.chance())
        # A single cut is ordinary: a server that restarts, a balancer that tidies up.
        if self._failures or error.cause is not ClusterCause.UNREACHABLE:
            self._say(Trouble(error.cause, str(error)))
        longest = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 16)
        return error.wait + longest * self._means.chance()

    def _calm(self) -> None:
        self._failures = 0
        self._say(Trouble(None))

    def _say(self, trouble: Trouble) -> None:
        """Tell a trouble once, and its end."""
        if trouble.cause is not self._told.cause:
            self._told = trouble
            self._means.tell(trouble)
