"""Stories as the lab would tell them, for the tests of what is concluded from them."""

from dataclasses import replace

from e2e.demo.model import Act, Ending, Event, Kind, Sighting, Story, TokenUse
from e2e.records import Beat

ZERO = 1_800_000_000.0


def beat(n: int, *, ok: bool = True, release: str = "1.1.0") -> Beat:
    """The beat of the n-th second of the story."""
    start = int((ZERO + n) * 1000)
    code = 0 if ok else 1
    return Beat(
        n=n, start=start, end=start + 200, ok=ok, rc=code, release=release, slot="", message=""
    )


def event(after: float, act: str, stage: str = "complete", detail: str = "") -> Event:
    """Something told by hostsync, `after` seconds into the story."""
    return Event(at=ZERO + after, act=act, stage=stage, detail=detail)


def systemd(after: float, act: str, detail: str = "") -> Event:
    """Something told by systemd about the service."""
    return Event(at=ZERO + after, act=act, object="systemd", detail=detail)


def trial(began: float, *rest: Event) -> tuple[Event, ...]:
    """A restart asked for 2 s after the order, and what followed."""
    return (
        event(began + 2.0, "restart", "started"),
        systemd(began + 2.01, "stopping"),
        systemd(began + 2.1, "starting"),
        *rest,
    )


def act(kind: Kind, release: str, began: float, end: tuple[str, int], *events: Event) -> Act:
    """An order that took 5 s, the next one coming after 10 s; hanging takes 15 s and 20 s."""
    took, room = (15.0, 20.0) if kind is Kind.HANG else (5.0, 10.0)
    return Act(
        kind=kind,
        release=release,
        title=f"is {kind}",
        began=ZERO + began,
        ended=ZERO + began + took,
        until=ZERO + began + room,
        code=end[1],
        outcome=end[0],
        reason="its shim fails in kube1" if kind is Kind.BROKEN_INSIDE else "",
        events=events,
    )


CRASH = trial(
    20.0,
    systemd(22.2, "exited", "hostsync.service: Main process exited, code=exited, status=1/FAILURE"),
    event(22.3, "judge", "failed", "it ended"),
    systemd(22.5, "starting"),
    systemd(23.7, "ready"),
)
HANG = trial(
    30.0,
    event(42.0, "judge", "failed", "it was not ready within 10 s"),
    systemd(42.2, "starting"),
    systemd(43.0, "ready"),
)
ACTS = (
    act(Kind.INSTALL, "1.0.0", 0.0, ("installed", 0), systemd(5.5, "ready")),
    act(
        Kind.GOOD,
        "1.1.0",
        10.0,
        ("complete", 0),
        *trial(10.0, systemd(12.5, "ready"), event(14.9, "judge", detail="good")),
    ),
    act(Kind.CRASH, "1.2.0", 20.0, ("rolled-back", 5), *CRASH),
    act(Kind.HANG, "1.3.0", 30.0, ("rolled-back", 5), *HANG),
    act(Kind.BROKEN_INSIDE, "1.4.0", 50.0, ("refused", 3)),
)
SEEN = (
    (-1.0, ""),
    (2.0, "1.0.0"),
    (11.9, "1.1.0"),
    (21.9, "1.2.0"),
    (22.4, "1.1.0"),
    (31.9, "1.3.0"),
    (42.1, "1.1.0"),
)


def seen(later: float = 0.0) -> tuple[Sighting, ...]:
    """What an eye saw, so many seconds later than it happened."""
    return tuple(Sighting(at=ZERO + at + later, release=release) for at, release in SEEN)


GOOD = Story(
    acts=ACTS,
    host=seen(),
    machine=seen(0.004),
    beats=tuple(beat(n) for n in range(6, 58)),
    renewals=tuple(ZERO + n + 0.15 for n in range(6, 58)),
    refusals=0,
    tokens=(
        TokenUse(release="1.0.0", beats=6, fetched=3, used=2),
        TokenUse(release="1.1.0", beats=30, fetched=12, used=10),
    ),
    watched=(ZERO + 6.0, ZERO + 57.2),
    start_seconds=10.0,
    ending=Ending(exit_code=0, release="1.1.0", inside="1.1.0", active="active"),
)


def with_act(kind: Kind, changed: Act) -> Story:
    """The good story with another act of that kind."""
    return replace(GOOD, acts=tuple(changed if a.kind is kind else a for a in GOOD.acts))


def good_act(kind: Kind) -> Act:
    """The act of that kind in the good story."""
    return next(a for a in ACTS if a.kind is kind)
