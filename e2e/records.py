"""What the lab writes down, as typed values: beats, requests, journal entries, commands."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


class CommandFailedError(Exception):
    """A command in the lab ended with another code than 0."""

    def __init__(self, done: Completed) -> None:
        super().__init__(f"{' '.join(done.argv)} ended with {done.code}\n{done.out}{done.err}")
        self.done = done


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One turn of the kubelet stand-in.

    `n` is the second of the kernel's uptime the beat belongs to: consecutive beats differ by one,
    whatever the clock does. `start` and `end` are epoch milliseconds. `ok` means that the server
    stored the Lease. `release` and `slot` are what the machine itself saw, "" where there was none.
    """

    n: int
    start: int
    end: int
    ok: bool
    rc: int
    release: str
    slot: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request that a service of the world answered.

    `time` is its arrival in epoch seconds, `took` in seconds; a `status` of 0 is a connection
    dropped on purpose. `token` identifies the token issued or shown, `issued` its birth.
    """

    time: float
    took: float
    verb: str
    path: str
    status: int
    agent: str
    query: dict[str, str] = field(default_factory=dict)
    user: str = ""
    token: str = ""
    issued: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One journal entry; `time` in epoch seconds, `priority` as syslog counts (3 is an error)."""

    time: float
    unit: str
    priority: int
    message: str

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read one line of `journalctl --output=json`."""
        row = json.loads(line)
        said = row.get("MESSAGE")
        # journald writes bytes that are not UTF-8 as a list of numbers.
        message = bytes(said).decode(errors="replace") if isinstance(said, list) else said or ""
        return cls(
            time=int(row["__REALTIME_TIMESTAMP"]) / 1e6,
            unit=row.get("UNIT") or row.get("_SYSTEMD_UNIT") or "",
            priority=int(row.get("PRIORITY", 6)),
            message=message,
        )


def parse_beats(text: str) -> tuple[Beat, ...]:
    """Read the kubelet's record; an unfinished last line is left out."""
    return tuple(Beat(**json.loads(line)) for line in _whole_lines(text))


def parse_exchanges(text: str) -> tuple[Exchange, ...]:
    """Read a request log; an unfinished last line is left out."""
    names = {each.name for each in fields(Exchange)}
    rows = (json.loads(line) for line in _whole_lines(text))
    return tuple(
        Exchange(**{name: value for name, value in row.items() if name in names}) for row in rows
    )


def missed(beats: Iterable[Beat]) -> tuple[int, ...]:
    """Return the seconds, between the first beat and the last, in which the node did not beat."""
    good = {beat.n for beat in beats if beat.ok}
    return tuple(n for n in range(min(good), max(good) + 1) if n not in good) if good else ()


def _whole_lines(text: str) -> list[str]:
    return text[: text.rfind("\n") + 1].splitlines()
