"""A systemd for tests: the real interface on a real bus, with answers that a test chooses."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import (  # type: ignore[import-untyped]
    DBusConnection,
    Proxy,
    open_dbus_connection,
)

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = f"{NAME}.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"


@dataclass
class FakeUnit:
    """A unit by its properties, as D-Bus has them."""

    load: str = "loaded"
    active: str = "active"
    sub: str = "running"
    main_pid: int = 4242
    invocation: bytes = bytes(range(16))
    restarts: int = 0
    result: str = "success"

    def of_unit(self) -> dict[str, tuple[str, object]]:
        return {
            "LoadState": ("s", self.load),
            "ActiveState": ("s", self.active),
            "SubState": ("s", self.sub),
            "InvocationID": ("ay", self.invocation),
        }

    def of_service(self) -> dict[str, tuple[str, object]]:
        return {
            "MainPID": ("u", self.main_pid),
            "NRestarts": ("u", self.restarts),
            "Result": ("s", self.result),
        }


@dataclass
class Served:
    """What was asked for, and how to answer."""

    units: dict[str, FakeUnit] = field(default_factory=dict)
    asked: list[tuple[str, tuple[object, ...]]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """D-Bus error names by the method they answer."""
    at: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens before a method is answered."""
    result: str | None = "done"
    """How a job ends before its request is answered; None: it goes on."""


class FakeSystemd:
    """Serves from a thread until closed."""

    def __init__(self, address: str) -> None:
        self.served = Served()
        self._jobs = itertools.count(1)
        self._connection: DBusConnection = open_dbus_connection(address)
        Proxy(message_bus, self._connection).RequestName(NAME)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def vanish(self) -> None:
        """Leave the bus, whatever was asked stays unanswered."""
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.vanish()
        self._thread.join()
        self._connection.close()

    def end_job(self, job: str, result: str, unit: str = "a.service") -> None:
        """Announce the end of a job."""
        self._connection.send(job_removed(job, result, unit))

    def change(self, unit: str) -> None:
        """Announce that a unit changed."""
        emitter = DBusAddress(_unit_path(unit), interface=PROPERTIES)
        body: tuple[object, ...] = (f"{NAME}.Unit", {"ActiveState": ("s", "active")}, [])
        self._connection.send(new_signal(emitter, "PropertiesChanged", "sa{sv}as", body))

    def _serve(self) -> None:
        while True:
            try:
                message = self._connection.receive()
                if message.header.message_type is MessageType.method_call:
                    for answer in self._answers(message):
                        self._connection.send(answer)
            except OSError:
                return

    def _answers(self, message: Message) -> list[Message]:
        method, body = message.header.fields[HeaderFields.member], message.body
        self.served.asked.append((method, body))
        self.served.at.get(method, lambda: None)()
        if method in self.served.errors:
            return [new_error(message, self.served.errors[method], "s", ("refused by a test",))]
        if method in ("StartUnit", "StopUnit", "RestartUnit"):
            return self._job(message)
        return [self._answer(message, method, body)]

    def _job(self, message: Message) -> list[Message]:
        """The end of a job overtakes the answer that names it."""
        job = f"{PATH}/job/{next(self._jobs)}"
        reply = new_method_return(message, "o", (job,))
        if self.served.result is None:
            return [reply]
        return [job_removed(job, self.served.result, message.body[0]), reply]

    def _answer(self, message: Message, method: str, body: tuple[str, ...]) -> Message:
        match method:
            case "LoadUnit":
                return new_method_return(message, "o", (_unit_path(body[0]),))
            case "GetAll":
                return self._properties(message)
            case "EnableUnitFiles":
                return new_method_return(message, "ba(sss)", (True, []))
        return new_method_return(message)

    def _properties(self, message: Message) -> Message:
        path = message.header.fields[HeaderFields.path]
        absent = FakeUnit(
            load="not-found", active="inactive", sub="dead", main_pid=0, invocation=b""
        )
        unit = next((u for n, u in self.served.units.items() if _unit_path(n) == path), absent)
        of_service = message.body[0].endswith(".Service")
        values = unit.of_service() if of_service else unit.of_unit()
        return new_method_return(message, "a{sv}", (values,))


def job_removed(job: str, result: str, unit: str = "a.service") -> Message:
    """The signal as systemd sends it."""
    manager = DBusAddress(PATH, interface=MANAGER)
    number = int(job.rpartition("/")[2])
    return new_signal(manager, "JobRemoved", "uoss", (number, job, unit, result))


def _unit_path(name: str) -> str:
    escaped = "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in name)
    return f"{PATH}/unit/{escaped}"
