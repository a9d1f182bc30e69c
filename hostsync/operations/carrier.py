"""The carrier: a thread that carries out one operation at a time, so that the desk never waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import msgspec

from hostsync.errors import Busy, HostsyncError
from hostsync.operations.demand import Demand, Say
from hostsync.operations.operation import Operation
from hostsync.ports import Clock

Act = Callable[[Operation, Demand, Say], None]
"""Carries one out; raises Busy when it could not be begun, HostsyncError when it broke off."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an operation could not be begun or broke off, and when (monotonic seconds)."""

    uid: str
    why: str
    at: float


class Carrier:
    """Carries operations out, and says how far it has come.

    `nudge` is called, on the carrier's thread, whenever there is something new to see.
    """

    def __init__(self, act: Act, nudge: Callable[[], None], clock: Clock) -> None:
        self._act = act
        self._nudge = nudge
        self._clock = clock
        self._next: queue.Queue[tuple[Operation, Demand]] = queue.Queue()
        self._lock = threading.Lock()
        self._moving: dict[str, str] = {}
        self._refusal: Refusal | None = None

    def begin(self, operation: Operation, demand: Demand) -> None:
        """Have an operation carried out; one that was begun already goes first."""
        with self._lock:
            self._moving[operation.uid] = "begun"
            self._refusal = None
        self._next.put((operation, demand))

    @property
    def moving(self) -> dict[str, str]:
        """How far those have come that are being carried out, by uid."""
        with self._lock:
            return dict(self._moving)

    @property
    def refusal(self) -> Refusal | None:
        """What became of the last one, when it could not be begun or broke off."""
        with self._lock:
            return self._refusal

    def run(self) -> None:
        """Carry out what comes, for ever."""
        while True:
            self.turn(*self._next.get())

    def turn(self, operation: Operation, demand: Demand) -> None:
        """Carry one out."""
        why = ""
        try:
            self._act(operation, demand, lambda text: self._say(operation.uid, text))
        except Busy as error:
            why = error.brief
        except HostsyncError as error:
            why = str(error)
        now = self._clock.monotonic()
        with self._lock:
            self._moving.pop(operation.uid, None)
            self._refusal = Refusal(uid=operation.uid, why=why, at=now) if why else None
        self._nudge()

    def _say(self, uid: str, text: str) -> None:
        with self._lock:
            self._moving[uid] = text
        self._nudge()
