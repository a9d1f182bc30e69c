"""What was seen during the demonstration, as values. All times are seconds since the epoch."""

from dataclasses import dataclass
from enum import StrEnum

from e2e.records import Beat


class Kind(StrEnum):
    """What an order of the demonstration is about."""

    INSTALL = "install"
    GOOD = "good"
    CRASH = "crash"
    HANG = "hang"
    BROKEN_INSIDE = "broken-inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that hostsync or systemd told; `act` and `stage` are hostsync's words.

    systemd's own messages about the service have the acts `stopping`, `starting`, `ready` and
    `exited`, with `systemd` as their object.
    """

    at: float
    act: str
    stage: str = "complete"
    object: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """From this moment on `current` named this release to the observer; "" is none at all."""

    at: float
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One order: what was asked, how the command ended, what was told meanwhile.

    `outcome` is hostsync's word (complete, rolled-back, refused, installed, ...), and "failed" for
    an end it has no word for. `until` is when the next order was given: what happens up to then
    belongs to this one. `busy` counts the times it was turned away because the host was busy.
    """

    kind: Kind
    release: str
    title: str
    began: float
    ended: float
    code: int
    outcome: str
    reason: str = ""
    events: tuple[Event, ...] = ()
    until: float = float("inf")
    busy: int = 0

    @property
    def took(self) -> float:
        """Seconds from the order to the command's end."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """What one release's shim did: beats it answered, tokens it fetched, those the Lease used."""

    release: str
    beats: int
    fetched: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The host as `hostsync status` describes it when all is over."""

    exit_code: int
    release: str
    inside: str
    active: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that was seen. `watched` is the span in which kubelet has to beat.

    `host` and `machine` are what `current` named, read every few milliseconds in both places;
    `renewals` are the moments at which the API server stored the Lease, `refusals` the answers
    401 that it gave; `load` is the machine's load average per core at the end.
    """

    acts: tuple[Act, ...]
    host: tuple[Sighting, ...]
    machine: tuple[Sighting, ...]
    beats: tuple[Beat, ...]
    renewals: tuple[float, ...]
    refusals: int
    tokens: tuple[TokenUse, ...]
    watched: tuple[float, float]
    start_seconds: float
    ending: Ending
    load: float = 0.0

    def act(self, kind: Kind) -> Act | None:
        """The order of that kind, None when the story never came to it."""
        return next((act for act in self.acts if act.kind is kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A line of the timeline: `after` is in seconds from the order."""

    after: float
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Something hostsync promises, and what was measured; `value` is the bare number, if one."""

    name: str
    kept: bool
    measured: str
    limit: str
    value: float | None = None
