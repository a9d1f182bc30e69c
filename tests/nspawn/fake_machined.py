"""A machined for tests: the real interface on a real bus, with answers that a test chooses."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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

NAME = "org.freedesktop.machine1"
PATH = "/org/freedesktop/machine1"
MANAGER = f"{NAME}.Manager"

CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


@dataclass(frozen=True, kw_only=True)
class MessageBus:
    """A running bus; `socket` is where clients connect, `daemon` its process."""

    socket: Path
    daemon: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"unix:path={self.socket}"


@contextmanager
def bus(directory: Path) -> Iterator[MessageBus]:
    """A message bus of its own; the same directory gives the same address."""
    directory.mkdir(exist_ok=True)
    configuration = directory / "bus.conf"
    configuration.write_text(CONFIGURATION.format(socket=directory / "bus"))
    command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout
        assert daemon.stdout.readline()
        try:
            yield MessageBus(socket=directory / "bus", daemon=daemon)
        finally:
            # Killed, it cannot unlink the socket of a successor at the same address.
            daemon.kill()
            daemon.wait()
            (directory / "bus").unlink(missing_ok=True)


@dataclass(kw_only=True)
class FakeMachine:
    leader: int
    root: str = "/"
    class_: str = "container"


class FakeMachined:
    """Serves from a thread until closed."""

    def __init__(self, address: str) -> None:
        self.machines: dict[str, FakeMachine] = {}
        self.vanishing: set[str] = set()
        self.at_bind: Callable[[], object] = lambda: None
        self.bind_error: tuple[str, str] | None = None
        self.binds: list[tuple[object, ...]] = []
        self._connection: DBusConnection = open_dbus_connection(address)
        Proxy(message_bus, self._connection).RequestName(NAME)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def announce(self, member: str, name: str) -> None:
        manager = DBusAddress(PATH, interface=MANAGER)
        self._connection.send(new_signal(manager, member, "so", (name, _path(name))))

    def _serve(self) -> None:
        while True:
            try:
                message = self._connection.receive()
                if message.header.message_type is MessageType.method_call:
                    self._connection.send(self._answer(message))
            except OSError:
                return

    def _answer(self, message: Message) -> Message:
        match message.header.fields[HeaderFields.member]:
            case "ListMachines":
                rows = [
                    (name, machine.class_, "systemd-nspawn", _path(name))
                    for name, machine in self.machines.items()
                ]
                return new_method_return(message, "a(ssso)", (rows,))
            case "GetMachine":
                name = message.body[0]
                if name not in self.machines or name in self.vanishing:
                    return _no_such_machine(message, name)
                return new_method_return(message, "o", (_path(name),))
            case "GetAll":
                return self._properties(message)
            case "BindMountMachine":
                return self._bind(message)
        return new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", "s", ("no",))

    def _properties(self, message: Message) -> Message:
        path = message.header.fields[HeaderFields.path]
        name = next(name for name in self.machines if _path(name) == path)
        machine = self.machines[name]
        properties = {
            "Name": ("s", name),
            "Leader": ("u", machine.leader),
            "RootDirectory": ("s", machine.root),
            "Class": ("s", machine.class_),
            "Unit": ("s", f"systemd-nspawn@{name}.service"),
            "State": ("s", "running"),
        }
        return new_method_return(message, "a{sv}", (properties,))

    def _bind(self, message: Message) -> Message:
        self.binds.append(message.body)
        self.at_bind()
        if message.body[0] not in self.machines:
            return _no_such_machine(message, message.body[0])
        if self.bind_error:
            return new_error(message, self.bind_error[0], "s", (self.bind_error[1],))
        return new_method_return(message)


def _path(name: str) -> str:
    return f"{PATH}/machine/{name.replace('-', '_2d').replace('.', '_2e')}"


def _no_such_machine(message: Message, name: str) -> Message:
    return new_error(message, f"{NAME}.NoSuchMachine", "s", (f"No machine '{name}' known",))
