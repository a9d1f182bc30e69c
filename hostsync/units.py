"""systemd over D-Bus: the one door to units.

Facts it rests on:
- RestartUnit and its kin return as soon as the job is queued; JobRemoved brings the result.
- Without Subscribe() systemd sends no JobRemoved to us.
- The bus matches signals by a well-known sender name, but they bear a unique one.
- A signal may arrive before the reply to the call that caused it, so results are kept from
  the moment of subscription on.
- ResetFailedUnit may be refused (SELinux, or a unit that is not loaded): tolerated.
- Reload is answered when it is done, which takes long on a host with many units.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from jeepney import (  # type: ignore[import-untyped]
    AuthenticationError,
    DBusAddress,
    DBusErrorResponse,
    HeaderFields,
    MatchRule,
    Message,
    new_method_call,
)
from jeepney.bus_messages import message_bus  # type: ignore[import-untyped]
from jeepney.io.blocking import (  # type: ignore[import-untyped]
    DBusConnection,
    open_dbus_connection,
)
from jeepney.wrappers import unwrap_msg  # type: ignore[import-untyped]

from hostsync.errors import UnitsError
from hostsync.ports import UnitState, UnitVerb

_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = "org.freedesktop.systemd1.Manager"
_UNIT = "org.freedesktop.systemd1.Unit"
_SERVICE = "org.freedesktop.systemd1.Service"
_PROPERTIES = "org.freedesktop.DBus.Properties"
REPLY_SECONDS = 25.0
RELOAD_SECONDS = 90.0
_JOBS_KEPT = 64
_NOTHING_TO_KILL = (
    "org.freedesktop.systemd1.NoSuchProcess",
    "org.freedesktop.systemd1.NoSuchUnit",
)


class Systemd:
    """`ports.Units` on the system bus; connects at first use."""

    def __init__(self, address: str = "SYSTEM") -> None:
        self._address = address
        self._open: DBusConnection | None = None
        self._signals: deque[Message] = deque(maxlen=4096)
        self._results: dict[str, str] = {}
        self._owner: object = None

    def state(self, unit: str) -> UnitState:
        """See `ports.Units.state`."""
        (path,) = self._ask(_PATH, _MANAGER, "LoadUnit", "s", unit)
        of_unit = self._properties(str(path), _UNIT)
        of_service = self._properties(str(path), _SERVICE) if unit.endswith(".service") else {}
        invocation = of_unit.get("InvocationID")
        return UnitState(
            load=str(of_unit.get("LoadState", "")),
            active=str(of_unit.get("ActiveState", "")),
            sub=str(of_unit.get("SubState", "")),
            main_pid=_number(of_service.get("MainPID")),
            invocation=invocation.hex() if isinstance(invocation, bytes) else "",
            restarts=_number(of_service.get("NRestarts")),
            result=str(of_service.get("Result", "")),
        )

    def queue(self, verb: UnitVerb, unit: str) -> str:
        """See `ports.Units.queue`."""
        (job,) = self._ask(_PATH, _MANAGER, verb.value, "ss", unit, "replace")
        return str(job)

    def job_result(self, job: str) -> str | None:
        """See `ports.Units.job_result`."""
        self._receive(0)
        return self._results.get(job)

    def wait(self, seconds: float) -> None:
        """See `ports.Units.wait`."""
        self._receive(seconds)

    def reset_failed(self, unit: str) -> None:
        """See `ports.Units.reset_failed`."""
        with suppress(_Refusal):
            self._ask(_PATH, _MANAGER, "ResetFailedUnit", "s", unit)

    def kill(self, unit: str) -> None:
        """See `ports.Units.kill`."""
        try:
            self._ask(_PATH, _MANAGER, "KillUnit", "ssi", unit, "all", 9)
        except _Refusal as error:
            if error.name not in _NOTHING_TO_KILL:
                raise

    def reload(self) -> None:
        """See `ports.Units.reload`."""
        self._call(_message(_PATH, _MANAGER, "Reload", ""), RELOAD_SECONDS)

    def enable(self, units: tuple[str, ...]) -> None:
        """See `ports.Units.enable`."""
        self._ask(_PATH, _MANAGER, "EnableUnitFiles", "asbb", list(units), False, False)

    def close(self) -> None:
        """Close the connection; the next verb opens another."""
        if self._open is not None:
            self._open.close()
            # A restarted bus gives its names out anew, so the known one may be a stranger's.
            self._open = self._owner = None

    def _properties(self, path: str, interface: str) -> Mapping[str, object]:
        (values,) = self._ask(path, _PROPERTIES, "GetAll", "s", interface)
        if not isinstance(values, dict):
            raise UnitsError(f"systemd gave no properties of {path}")
        return {str(name): value for name, (_, value) in values.items()}

    def _receive(self, seconds: float) -> None:
        """Take in what has come; when nothing has, wait for something up to `seconds`."""
        connection = self._connection()
        while True:
            try:
                message = connection.recv_until_filtered(self._signals, timeout=seconds)
            except TimeoutError:
                return
            except OSError as error:
                self.close()
                raise UnitsError(f"lost the connection to systemd: {error}") from error
            self._note(message)
            seconds = 0

    def _note(self, message: Message) -> None:
        fields = message.header.fields
        if fields.get(HeaderFields.member) == "JobRemoved" and self._is_systemd(
            fields.get(HeaderFields.sender)
        ):
            _, job, _, result = message.body
            self._results[str(job)] = str(result)
            while len(self._results) > _JOBS_KEPT:
                del self._results[next(iter(self._results))]

    def _is_systemd(self, sender: object) -> bool:
        """Whether a signal came from systemd: anybody on the bus may send one straight to us."""
        if sender != self._owner:
            try:
                (self._owner,) = self._call(message_bus.GetNameOwner(_NAME))
            except _Refusal:
                return False
        return sender == self._owner

    def _connection(self) -> DBusConnection:
        if self._open is None:
            try:
                self._open = open_dbus_connection(bus=self._address)
            except (OSError, RuntimeError, ValueError, AuthenticationError) as error:
                raise UnitsError(
                    f"cannot reach systemd over the system bus: {error}",
                    remedy="is dbus running, and is this the host (not a chroot)?",
                ) from error
            try:
                self._subscribe(self._open)
            except BaseException:
                self.close()
                raise
        return self._open

    def _subscribe(self, connection: DBusConnection) -> None:
        self._signals.clear()
        for wanted in (
            {"interface": _MANAGER, "member": "JobRemoved", "path": _PATH},
            {
                "interface": _PROPERTIES,
                "member": "PropertiesChanged",
                "path_namespace": f"{_PATH}/unit",
            },
        ):
            # Messages bear the sender's unique name, so only the bus can match the known one.
            connection.filter(MatchRule(type="signal", **wanted), queue=self._signals)
            rule = MatchRule(type="signal", sender=_NAME, **wanted)
            self._call(message_bus.AddMatch(rule))
        self._ask(_PATH, _MANAGER, "Subscribe", "")

    def _ask(
        self, path: str, interface: str, method: str, signature: str, *arguments: object
    ) -> tuple[object, ...]:
        return self._call(_message(path, interface, method, signature, *arguments))

    def _call(self, call: Message, timeout: float = REPLY_SECONDS) -> tuple[object, ...]:
        """The body of the answer; after a broken connection the next call opens another."""
        method = call.header.fields[HeaderFields.member]
        try:
            return tuple(unwrap_msg(self._connection().send_and_get_reply(call, timeout=timeout)))
        except DBusErrorResponse as error:
            said = error.data[0] if error.data else ""
            raise _Refusal(
                f"systemd refused {method} {call.body}: {error.name}: {said}", error.name
            ) from error
        except OSError as error:
            self.close()
            raise UnitsError(f"systemd did not answer {method}: {error}") from error


class _Refusal(UnitsError):
    """An answer that is an error; `name` is the one on the bus."""

    def __init__(self, brief: str, name: str) -> None:
        super().__init__(brief)
        self.name = name


def _message(path: str, interface: str, method: str, signature: str, *arguments: object) -> Message:
    address = DBusAddress(path, bus_name=_NAME, interface=interface)
    return new_method_call(address, method, signature or None, arguments)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
