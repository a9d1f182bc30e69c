"""systemd-machined over D-Bus: which machines run, binding into them, and when they come and go.

The interface is org.freedesktop.machine1(5). Facts it rests on, on systemd 252 to 262: a second
identical bind stacks on 252 and machined cannot unbind, so no bind is ever repeated by itself;
`.host` is listed as a machine of class "host"; restarting machined announces running machines
again.
"""

from __future__ import annotations

import time
from collections import deque
from enum import Enum
from pathlib import Path
from typing import Final, Self

import msgspec

from nspawn import _binding
from nspawn._bus import Bus, Call, CallFailed, ConnectionLost, open_bus
from nspawn.errors import BusUnavailable, NoSuchMachine
from nspawn.machine import (
    Machine,
    checked_name,
    in_user_namespace,
    start_time,
    writable_root,
)

__all__ = ["EventKind", "Machine", "MachineEvent", "Machined"]

SERVICE: Final = "org.freedesktop.machine1"
PATH: Final = "/org/freedesktop/machine1"
MANAGER: Final = "org.freedesktop.machine1.Manager"
MACHINE: Final = "org.freedesktop.machine1.Machine"

_GONE = frozenset(
    {
        "org.freedesktop.machine1.NoSuchMachine",
        "org.freedesktop.DBus.Error.UnknownObject",
    }
)


class EventKind(Enum):
    """What happened to a machine; the values are the names of machined's signals."""

    NEW = "MachineNew"
    REMOVED = "MachineRemoved"


class MachineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A machine came or went. It is a hint: ask `get` for what is true now."""

    kind: EventKind
    name: str


class Machined:
    """A connection to machined; a context manager, for one thread at a time.

    A connection that broke is replaced once per call. Events are collected from `connect` on.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._bus: Bus | None = None
        self._known: set[str] = set()
        self._missed: deque[MachineEvent] = deque()

    @classmethod
    def connect(cls, address: str | None = None) -> Self:
        """Connect to the bus at `address`, by default the system bus; raises BusUnavailable."""
        machined = cls(address)
        machined._connected()
        return machined

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._bus:
            self._bus.close()
            self._bus = None

    def list(self) -> tuple[Machine, ...]:
        """The running containers, sorted by name; one that ends meanwhile is left out.

        Raises BusUnavailable.
        """
        names = self._container_names()
        self._known = set(names)
        found = (self._found(name) for name in names)
        return tuple(machine for machine in found if machine)

    def get(self, name: str) -> Machine:
        """The machine of that name, of whatever class; raises NoSuchMachine, BusUnavailable."""
        try:
            (path,) = self._call(_manager("GetMachine", "s", checked_name(name)))
            (properties,) = self._call(
                Call(
                    path=str(path),
                    interface="org.freedesktop.DBus.Properties",
                    member="GetAll",
                    signature="s",
                    body=(MACHINE,),
                )
            )
        except CallFailed as e:
            if e.name in _GONE:
                raise NoSuchMachine(name) from e
            raise _unanswered(e) from e
        return _machine(name, properties)

    def bind(self, name: str, source: Path, destination: Path) -> None:
        """Bind `source` of the host read-only at `destination` in a running machine.

        The mount point is made when missing (mode 0700 below what exists: make it beforehand
        if that matters). Not idempotent: look first, since on systemd 252 binds stack. Raises
        BindRefused with the reason, NoSuchMachine, and BusUnavailable, after which it may
        have been mounted or not.
        """
        _binding.check(source, destination)
        machine = self.get(name)
        arguments = (name, str(source), str(destination), True, True)
        try:
            self._once(_manager("BindMountMachine", "sssbb", *arguments))
        except ConnectionLost as e:
            self.close()
            raise BusUnavailable(
                f"the bus broke while {source} was bound into machine {name!r}",
                remedy="look whether it is there before trying again",
            ) from e
        except CallFailed as e:
            if e.name in _GONE:
                raise NoSuchMachine(name) from e
            raise _binding.refused(machine, source, destination, e) from e

    def wait_event(self, timeout: float) -> MachineEvent | None:
        """The next event, or None after `timeout` seconds.

        Where the connection broke, events may have been lost: then each machine that went is
        reported, and each running one is reported as new again. Raises BusUnavailable.
        """
        deadline = time.monotonic() + timeout
        while not self._missed:
            try:
                signal = self._connected().wait(deadline - time.monotonic())
            except ConnectionLost:
                self._resume()
                continue
            if signal is None:
                return None
            event = _event(EventKind(signal.member), signal.body)
            if event:
                return self._noted(event)
        return self._noted(self._missed.popleft())

    def _noted(self, event: MachineEvent) -> MachineEvent:
        (self._known.add if event.kind is EventKind.NEW else self._known.discard)(event.name)
        return event

    def _resume(self) -> None:
        """Reconnect and queue what tells a caller the difference."""
        self.close()
        running = self._container_names()
        gone = sorted(self._known.difference(running))
        self._missed.extend(MachineEvent(kind=EventKind.REMOVED, name=name) for name in gone)
        self._missed.extend(MachineEvent(kind=EventKind.NEW, name=name) for name in running)

    def _container_names(self) -> tuple[str, ...]:
        try:
            (rows,) = self._call(_manager("ListMachines"))
        except CallFailed as e:
            raise _unanswered(e) from e
        if not isinstance(rows, list):
            raise _nonsense("ListMachines")
        return tuple(sorted(str(name) for name, class_, *_ in rows if class_ == "container"))

    def _found(self, name: str) -> Machine | None:
        try:
            return self.get(name)
        except NoSuchMachine:
            return None

    def _connected(self) -> Bus:
        if self._bus is None:
            self._bus = open_bus(SERVICE, self._address)
            try:
                self._bus.subscribe(PATH, MANAGER, tuple(kind.value for kind in EventKind))
            except (CallFailed, ConnectionLost) as e:
                self.close()
                raise BusUnavailable(f"the bus refused to serve: {e}", remedy="try again") from e
            except BusUnavailable:
                self.close()
                raise
        return self._bus

    def _once(self, call: Call) -> tuple[object, ...]:
        return self._connected().call(call)

    def _call(self, call: Call) -> tuple[object, ...]:
        """Make a call that may be repeated, on a new connection if the old one broke."""
        try:
            return self._once(call)
        except ConnectionLost:
            self.close()
        try:
            return self._once(call)
        except ConnectionLost as e:
            self.close()
            raise BusUnavailable("the bus broke twice", remedy="check that dbus runs") from e


def _manager(member: str, signature: str = "", *body: object) -> Call:
    return Call(path=PATH, interface=MANAGER, member=member, signature=signature, body=body)


def _machine(name: str, properties: object) -> Machine:
    """The machine out of its D-Bus properties and its leader's /proc."""
    if not isinstance(properties, dict):
        raise _nonsense("GetAll")
    values: dict[object, object] = {key: variant[1] for key, variant in properties.items()}
    leader = values.get("Leader")
    if not isinstance(leader, int) or leader <= 0:
        raise NoSuchMachine(name)
    try:
        return Machine(
            name=name,
            leader=leader,
            leader_start=start_time(Path(f"/proc/{leader}/stat").read_bytes()),
            root=writable_root(str(values.get("RootDirectory", "")), leader),
            unit=str(values.get("Unit", "")),
            state=str(values.get("State", "")),
            class_=str(values.get("Class", "")),
            user_namespace=in_user_namespace(leader),
        )
    except (FileNotFoundError, ProcessLookupError) as e:
        raise NoSuchMachine(name, "has ended") from e


def _event(kind: EventKind, body: tuple[object, ...]) -> MachineEvent | None:
    """The event of a signal; None for what is no machine of ours, such as `.host`."""
    try:
        return MachineEvent(kind=kind, name=checked_name(str(body[0])))
    except (IndexError, NoSuchMachine):
        return None


def _unanswered(e: CallFailed) -> BusUnavailable:
    return BusUnavailable(f"machined does not serve: {e}", remedy="check systemd-machined.service")


def _nonsense(member: str) -> BusUnavailable:
    return BusUnavailable(
        f"machined answered {member} with something else", remedy="see its version"
    )
