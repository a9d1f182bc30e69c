"""What this package asks of a message bus: blocking calls to one service, and its signals.

The implementation is in `_dbus`, imported when a connection is opened and never before, since
jeepney costs 20 ms.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A method call; `signature` and `body` are as D-Bus has them."""

    path: str
    interface: str
    member: str
    signature: str = ""
    body: tuple[object, ...] = ()


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal of the service."""

    member: str
    body: tuple[object, ...]


class CallFailed(Exception):
    """The service answered with an error; `name` is the D-Bus error name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class ConnectionLost(Exception):
    """The connection broke; whether a call in flight took effect is unknown."""


class Bus(Protocol):
    """A connection for one service; not for use by two threads at a time."""

    def call(self, call: Call) -> tuple[object, ...]:
        """The body of the service's answer.

        Raises CallFailed, ConnectionLost, and BusUnavailable without an answer in time.
        """

    def subscribe(self, path: str, interface: str, members: tuple[str, ...]) -> None:
        """From now on keep these signals of the service for `wait`; raises as `call`."""

    def wait(self, timeout: float) -> Signal | None:
        """The next signal, or None after `timeout` seconds; raises ConnectionLost."""

    def close(self) -> None:
        """Close the connection; the bus forgets the subscriptions."""


def open_bus(service: str, address: str | None) -> Bus:
    """Connect to `address`, by default the system bus; raises BusUnavailable."""
    from nspawn._dbus import Connection

    return Connection.open(service, address)
