"""A MachineOperation as a value (group unbounded-cloud.io, version v1alpha3; cluster-scoped)."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Self

import msgspec

from hostsync.operations.selection import Selector

GROUP, VERSION = "unbounded-cloud.io", "v1alpha3"
KIND, PLURAL = "MachineOperation", "machineoperations"
API_VERSION = f"{GROUP}/{VERSION}"


class Kind(StrEnum):
    """What an operation asks for; the daemon carries out the first two."""

    AGENT_UPGRADE = "AgentUpgrade"
    NODE_REBOOT = "NodeReboot"
    AGENT_RESET = "AgentReset"
    HOST_REBOOT = "HostReboot"
    HOST_POWER_OFF = "HostPowerOff"
    HOST_POWER_ON = "HostPowerOn"
    HOST_REPLACE = "HostReplace"


class Phase(StrEnum):
    """How far an operation has come; the last two are terminal."""

    NEW = ""
    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    COMPLETE = "Complete"
    FAILED = "Failed"


TERMINAL = (Phase.COMPLETE, Phase.FAILED)


class UnreadableError(ValueError):
    """An object that no server with the definition of this kind would have stored."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A metav1.Condition; times in RFC 3339."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: str = ""  # noqa: N815 - the API's word
    observedGeneration: int = 0  # noqa: N815


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's entry in the status of an operation that selects several."""

    machineRef: str  # noqa: N815
    phase: str = ""
    message: str = ""
    startedAt: str = ""  # noqa: N815
    completedAt: str = ""  # noqa: N815


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One MachineOperation as it was last seen.

    `version` is the resourceVersion, `ttl` in seconds after a terminal phase, times are RFC 3339
    text as the API gives them and empty when unset.
    """

    name: str
    uid: str
    version: str = ""
    generation: int = 0
    created: str = ""
    kind: str
    machine: str = ""
    selector: Selector | None = None
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    ttl: int | None = None
    phase: str = Phase.NEW
    message: str = ""
    started: str = ""
    completed: str = ""
    conditions: tuple[Condition, ...] = ()
    targets: tuple[Target, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the phase is terminal: nothing is ever written over it."""
        return self.phase in TERMINAL

    def target(self, machine: str) -> Target | None:
        """The entry of one machine, None while there is none."""
        return next((each for each in self.targets if each.machineRef == machine), None)

    @classmethod
    def parse(cls, document: object) -> Self:
        """Read an object as the API gives it; raises UnreadableError."""
        try:
            read = msgspec.convert(document, type=_Document)
        except (msgspec.ValidationError, UnicodeError) as error:
            # JSON can escape half a character, which no server would store either.
            trouble = str(error)
        else:
            return cls(
                name=read.metadata.name,
                uid=read.metadata.uid,
                version=read.metadata.resourceVersion,
                generation=read.metadata.generation,
                created=read.metadata.creationTimestamp,
                kind=read.spec.operationKind,
                machine=read.spec.machineRef,
                selector=read.spec.machineSelector,
                parameters=read.spec.parameters,
                ttl=read.spec.ttlSecondsAfterFinished,
                phase=read.status.phase,
                message=read.status.message,
                started=read.status.startedAt or "",
                completed=read.status.completedAt or "",
                conditions=tuple(read.status.conditions),
                targets=tuple(read.status.targets),
            )
        raise UnreadableError(f"not a {KIND}: {trouble}")


_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class _Metadata(msgspec.Struct, kw_only=True):
    name: _Name
    uid: _Name
    resourceVersion: str = ""  # noqa: N815
    generation: int = 0
    creationTimestamp: str = ""  # noqa: N815


class _Spec(msgspec.Struct, kw_only=True):
    operationKind: str  # noqa: N815
    machineRef: str = ""  # noqa: N815
    machineSelector: Selector | None = None  # noqa: N815
    parameters: dict[str, str] = {}
    ttlSecondsAfterFinished: _Seconds | None = None  # noqa: N815


class _Status(msgspec.Struct, kw_only=True):
    phase: str = ""
    message: str = ""
    startedAt: str | None = None  # noqa: N815
    completedAt: str | None = None  # noqa: N815
    conditions: list[Condition] = []
    targets: list[Target] = []


class _Document(msgspec.Struct, kw_only=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


def rfc3339(seconds: float) -> str:
    """A time since the epoch as metav1.Time writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(text: str) -> float | None:
    """A metav1.Time in seconds since the epoch, None when it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
