"""The durable record of the upgrade in flight: intent first, cleared last.

One JSON file with an embedded checksum. A record that cannot be read is set aside, never
guessed at: the caller then keeps both slots and deletes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from hostsync.errors import Reason, Refused
from hostsync.model import SlotName
from hostsync.ports import Fs

SCHEMA = 1
RECORD_LIMIT = 256 << 10
"""A record longer than this many bytes is not ours."""


class Phase(StrEnum):
    """How far an order has come; each is on disk before its first effect."""

    STAGING = "staging"
    """The candidate is written and verified beside the slots; slots and links are untouched."""

    SWITCHING = "switching"
    """Slots and links are being repointed; the agent has not been restarted."""

    SWITCHED = "switched"
    """Everything points at the candidate; the judge owns the order from here on."""

    TRIAL = "trial"
    """The restart was asked for; the judge watches."""

    COMMITTING = "committing"
    """The verdict is good; service assets converge and the displaced release goes."""

    ROLLING_BACK = "rolling-back"
    """The verdict is bad; slots, links, mirrors, assets and the service go back."""


class SourceKind(StrEnum):
    """Who ordered."""

    DIRECT = "direct"
    OPERATION = "operation"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where an order came from; `name` and `uid` are those of a MachineOperation."""

    kind: SourceKind = SourceKind.DIRECT
    name: str = ""
    uid: str = ""


class ReleaseId(msgspec.Struct, frozen=True, kw_only=True):
    """A release by what it says it is and by its content digest (64 hex digits)."""

    version: str
    digest: str


class TrialState(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge needs to go on where a killed one stopped.

    `started` is on the monotonic clock of `boot_id`; both are void after a reboot.
    """

    boot_id: str
    started: float
    baseline_invocation: str
    baseline_restarts: int = 0
    attempts: int = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One order in flight. Times are seconds since the epoch."""

    schema: int = SCHEMA
    order: str
    agent: str
    source: Source = msgspec.field(default_factory=Source)
    candidate: ReleaseId
    source_digest: str = ""
    previous: ReleaseId
    previous_slot: SlotName
    target_slot: SlotName
    last_good_slot: SlotName | None
    """What the last-good link named before the order."""
    evicts: bool
    """Whether the target slot held a sealed or unsealed release that must wait in `evicted`."""
    staged: bool = True
    """False for a roll back by hand: its candidate is in a slot already."""
    restart: bool = True
    """False when the operator had stopped the service: it is not started behind their back."""
    best_effort: bool = False
    """Machines that cannot follow do not fail the order."""
    self_test_before: dict[str, int] = {}
    """Exit status of the current release's self-test per machine, before the switch."""
    phase: Phase
    created_at: float
    updated_at: float
    trial: TrialState | None = None
    reason: str = ""
    blame: bool = True
    """Whether the reason speaks against the release, so that it is remembered as bad."""
    failed_invocation: str = ""
    """The run of the service that was judged bad: a later one is the release restored."""
    evidence: list[str] = []
    resumptions: int = 0
    """How often going back was begun; beyond a limit trouble with systemd is final."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    checksum: str
    record: msgspec.Raw


class RecordFile:
    """The record of one agent on disk."""

    def __init__(self, directory: Path, fs: Fs) -> None:
        self._directory = directory
        self._fs = fs
        self.path = directory / "record.json"

    def load(self) -> Record | None:
        """The record in flight, None when there is none.

        Raises Refused(RECORD_UNREADABLE) when there is one that cannot be understood; it stays
        in place for a human, and every verb that would change something refuses meanwhile.
        """
        try:
            with open(self.path, "rb") as file:
                data = file.read(RECORD_LIMIT + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(
                Reason.RECORD_UNREADABLE, f"cannot read {self.path}: {error.strerror}"
            ) from error
        try:
            return decode(data)
        except ValueError as error:
            raise Refused(
                Reason.RECORD_UNREADABLE,
                f"the upgrade record {self.path} cannot be used: {error}",
                remedy="check `hostsync status`, then run `hostsync recover --set-record-aside`",
            ) from error

    def store(self, record: Record) -> None:
        """Put the record on disk, durably, readable by root alone."""
        self._fs.make_directory(self._directory, 0o700)
        self._fs.write(self.path, encode(record), 0o600)

    def clear(self) -> None:
        """Forget the order: the last thing that happens to it."""
        self._fs.remove(self.path)

    def set_aside(self, stamp: str) -> Path:
        """Move an unreadable record out of the way and return where it went."""
        kept = self.path.with_name(f"record.unreadable-{stamp}.json")
        self._fs.move(self.path, kept)
        return kept


def encode(record: Record) -> bytes:
    """The bytes of a record file."""
    body = msgspec.json.encode(record)
    return msgspec.json.encode(
        _Envelope(checksum=sha256(body).hexdigest(), record=msgspec.Raw(body))
    )


def decode(data: bytes) -> Record:
    """Read a record file; raises ValueError for torn, altered or newer content."""
    if len(data) > RECORD_LIMIT:
        raise ValueError(f"it is longer than {RECORD_LIMIT} bytes")
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        body = bytes(envelope.record)
        if sha256(body).hexdigest() != envelope.checksum:
            raise ValueError("its checksum does not match")
        record = msgspec.json.decode(body, type=Record)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if record.schema != SCHEMA:
        raise ValueError(f"its schema is {record.schema}, this release reads {SCHEMA}")
    return record
