"""From what the lab wrote down to values: pure, and forgiving about what it does not know.

The judge's lines in the journal may be text or JSON: both carry the same event.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from e2e.demo.model import Ending, Event, Sighting, TokenUse
from e2e.records import Beat, Entry, Exchange

AGENT_PREFIX = "hostsync-credential/"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

_STAGES = ("started", "failed", "complete")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d\.\d{3}$")
_SYSTEMD = (
    ("stopping", re.compile(r"^Stopping ")),
    ("starting", re.compile(r"^Starting ")),
    ("ready", re.compile(r"^Started ")),
    ("exited", re.compile(r"Main process exited")),
)

Line = Mapping[str, object]


def json_lines(text: str) -> tuple[Line, ...]:
    """The JSON objects that a command printed; what is none is passed over."""
    found = (_object(line) for line in text.splitlines())
    return tuple(line for line in found if line is not None)


def _object(text: str) -> Line | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def told(lines: Iterable[Line]) -> tuple[Event, ...]:
    """The events among the JSON lines that a command of hostsync printed."""
    found = (event_of(line, at=0.0) for line in lines)
    return tuple(event for event in found if event is not None)


def event_of(line: Line, *, at: float) -> Event | None:
    """The event in a JSON line; None when there is none. `at` serves where it holds no time."""
    inner = line.get("event", line)
    if not isinstance(inner, Mapping) or not isinstance(inner.get("act"), str):
        return None
    moment = inner.get("at")
    return Event(
        at=float(moment) if isinstance(moment, int | float) else at,
        act=str(inner["act"]),
        stage=str(inner.get("stage") or "complete"),
        object=str(inner.get("object") or ""),
        detail=str(inner.get("detail") or ""),
    )


def judged(entries: Iterable[Entry]) -> tuple[Event, ...]:
    """What the judge told in its journal, at the journal's times."""
    found = (_judge_event(entry) for entry in entries)
    return tuple(event for event in found if event is not None)


def _judge_event(entry: Entry) -> Event | None:
    line = _object(entry.message)
    if line is not None:
        return event_of(line, at=entry.time)
    clock, *parts = entry.message.split("  ")
    if not _CLOCK.fullmatch(clock) or not parts:
        return None
    words, (subject, detail) = parts[0], (*parts[1:], "", "")[:2]
    act, _, stage = words.rpartition(" ")
    if stage not in _STAGES:
        act, stage = words, "complete"
    return Event(at=entry.time, act=act, stage=stage, object=subject, detail=detail)


def served(entries: Iterable[Entry]) -> tuple[Event, ...]:
    """What systemd said of the service: when it stops, starts, is ready, lost its process."""
    return tuple(
        Event(at=entry.time, act=act, object="systemd", detail=entry.message)
        for entry in entries
        for act, pattern in _SYSTEMD
        if pattern.search(entry.message)
    )


def sightings(text: str) -> tuple[Sighting, ...]:
    """What an observer wrote: a time and a release on each line, the release possibly missing."""
    rows = (line.partition(" ") for line in text[: text.rfind("\n") + 1].splitlines())
    return tuple(Sighting(at=float(at), release=release) for at, _, release in rows)


def outcome_of(lines: Sequence[Line], code: int) -> tuple[str, str]:
    """How an order ended and why: hostsync's word, and its sentence."""
    for line in reversed(lines):
        match line:
            case {"verdict": {"outcome": str(outcome), **rest}}:
                return outcome, str(rest.get("reason") or "")
            case {"error": {"message": str(message), **rest}}:
                return ("refused" if code == 3 else str(rest.get("code") or "failed")), message
            case {"installed": _}:
                return "installed", ""
    return "failed", f"exit status {code}"


def ending_of(lines: Sequence[Line], code: int) -> Ending:
    """The host as the last status line tells."""
    status = next((line["status"] for line in reversed(lines) if "status" in line), {})
    match status:
        case {"current": str(current), "active": str(active), **rest}:
            return Ending(
                exit_code=code,
                release=_version_in(rest.get("slots"), current),
                inside=_seen_by(rest.get("machines")),
                active=active,
                problems=_texts(rest.get("problems")),
            )
    return Ending(exit_code=code, release="", inside="", active="unknown")


def _version_in(slots: object, name: str) -> str:
    for slot in slots if isinstance(slots, list) else []:
        match slot:
            case {"name": str(found), "version": str(version)} if found == name:
                return version
    return ""


def _seen_by(machines: object) -> str:
    for machine in machines if isinstance(machines, list) else []:
        match machine:
            case {"release": str(release)}:
                return release
    return ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list) else ()


def renewals(api: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """The requests by which the API server stored the node's Lease."""
    return tuple(
        each
        for each in api
        if each.verb in ("PUT", "POST")
        and each.status in (200, 201)
        and each.path.startswith(LEASE_PATH)
    )


def token_uses(
    beats: Iterable[Beat], imds: Iterable[Exchange], stored: Iterable[Exchange]
) -> tuple[TokenUse, ...]:
    """Who served: per release the beats answered, the tokens fetched, those that the Lease used.

    Tokens that no renewal used are those of self-tests, which never come from the cache.
    """
    fetched = {
        each.token: each.agent.removeprefix(AGENT_PREFIX)
        for each in imds
        if each.token and each.status == 200
    }
    used = {each.token for each in stored}
    answered = [beat.release for beat in beats if beat.ok]
    names = sorted({*answered, *fetched.values()})
    return tuple(
        TokenUse(
            release=name,
            beats=answered.count(name),
            fetched=sum(by == name for by in fetched.values()),
            used=sum(by == name and token in used for token, by in fetched.items()),
        )
        for name in names
    )
