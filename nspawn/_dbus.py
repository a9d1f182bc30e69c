"""The only module that speaks D-Bus, over jeepney's blocking connection.

jeepney ships no type information, so the little that is used of it is typed here, and what
comes over the bus is `object` until somebody checks it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol, Self

from jeepney import (  # type: ignore[import-untyped]
    AuthenticationError,
    DBusAddress,
    HeaderFields,
    MatchRule,
    MessageType,
    new_method_call,
)
from jeepney.io.blocking import open_dbus_connection  # type: ignore[import-untyped]

from nspawn._bus import Call, CallFailed, ConnectionLost, Signal
from nspawn.errors import BusUnavailable

CALL_TIMEOUT: Final = 10.0
"""Seconds to wait for any one answer."""

_SIGNALS_KEPT = 4096
_SYSTEM = "SYSTEM"
_BUS = "org.freedesktop.DBus"
_BUS_PATH = "/org/freedesktop/DBus"


class _Header(Protocol):
    message_type: object
    fields: Mapping[int, object]


class _Message(Protocol):
    header: _Header
    body: tuple[object, ...]


class _Connection(Protocol):
    def send_and_get_reply(self, message: _Message, *, timeout: float) -> _Message: ...
    def recv_until_filtered(self, queue: deque[_Message], *, timeout: float) -> _Message: ...
    def filter(self, rule: object, *, queue: deque[_Message]) -> object: ...
    def close(self) -> None: ...


class Connection:
    """`_bus.Bus` over jeepney's blocking connection."""

    def __init__(self, connection: _Connection, service: str) -> None:
        self._connection = connection
        self._service = service
        self._signals: deque[_Message] = deque(maxlen=_SIGNALS_KEPT)
        self._owner: object = None

    @classmethod
    def open(cls, service: str, address: str | None) -> Self:
        """See `_bus.open_bus`."""
        try:
            connection: _Connection = open_dbus_connection(address or _SYSTEM)
        except (OSError, RuntimeError, ValueError, AuthenticationError) as e:
            raise BusUnavailable(
                f"cannot connect to the bus: {e}", remedy="check that dbus runs, and run as root"
            ) from e
        return cls(connection, service)

    def close(self) -> None:
        """See `_bus.Bus.close`."""
        self._connection.close()

    def call(self, call: Call) -> tuple[object, ...]:
        """See `_bus.Bus.call`."""
        return self._ask(self._service, call)

    def subscribe(self, path: str, interface: str, members: tuple[str, ...]) -> None:
        """See `_bus.Bus.subscribe`."""
        for member in members:
            # The bus knows the service by its well-known name, messages bear a unique one:
            # so the sender stands in the rule for the bus only and is compared in `wait`.
            asked = {"type": "signal", "path": path, "interface": interface, "member": member}
            self._connection.filter(MatchRule(**asked), queue=self._signals)
            rule = MatchRule(sender=self._service, **asked).serialise()
            self._ask_bus("AddMatch", rule)

    def wait(self, timeout: float) -> Signal | None:
        """See `_bus.Bus.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            rest = max(0.0, deadline - time.monotonic())
            try:
                message = self._connection.recv_until_filtered(self._signals, timeout=rest)
            except TimeoutError:
                return None
            except OSError as e:
                raise ConnectionLost from e
            fields = message.header.fields
            if self._is_owner(fields.get(HeaderFields.sender)):
                return Signal(member=str(fields[HeaderFields.member]), body=message.body)

    def _is_owner(self, sender: object) -> bool:
        """Whether `sender` is the service; anybody may send a signal straight to us."""
        if sender != self._owner:
            try:
                (self._owner,) = self._ask_bus("GetNameOwner", self._service)
            except CallFailed:
                return False
        return sender == self._owner

    def _ask_bus(self, member: str, argument: str) -> tuple[object, ...]:
        call = Call(path=_BUS_PATH, interface=_BUS, member=member, signature="s", body=(argument,))
        return self._ask(_BUS, call)

    def _ask(self, service: str, call: Call) -> tuple[object, ...]:
        address = DBusAddress(call.path, bus_name=service, interface=call.interface)
        message = new_method_call(address, call.member, call.signature or None, call.body)
        try:
            reply = self._connection.send_and_get_reply(message, timeout=CALL_TIMEOUT)
        except TimeoutError as e:
            raise BusUnavailable(
                f"{service} did not answer {call.member} in {CALL_TIMEOUT:g} s",
                remedy="check that it runs",
            ) from e
        except OSError as e:
            raise ConnectionLost from e
        if reply.header.message_type is MessageType.error:
            text = " ".join(str(part) for part in reply.body[:1])
            raise CallFailed(str(reply.header.fields.get(HeaderFields.error_name)), text)
        return reply.body
