"""Each promise is kept by a good story, and broken by exactly what breaks it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from e2e.demo.model import Ending, Kind, Sighting, Story
from e2e.demo.promises import promises, renewal_gaps
from tests.e2e_demo.stories import GOOD, ZERO, beat, good_act, seen, systemd, with_act


def broken(story: Story) -> list[str]:
    return [promise.name for promise in promises(story) if not promise.kept]


def test_a_good_story_keeps_every_promise() -> None:
    assert broken(GOOD) == []
    assert len(promises(GOOD)) == 13


def test_the_numbers_are_those_that_were_seen() -> None:
    measured = {promise.name: promise.measured for promise in promises(GOOD)}
    assert measured["first crash to last-good ready"] == "1.50 s"
    assert measured["hang: restart to last-good ready (start deadline + 3 s)"] == "11.00 s"
    assert (
        measured["the machine sees what the host does (5 switches and rollbacks)"] == "within 4 ms"
    )
    assert measured["heartbeats missed, across every switch and rollback"] == "0 of 52"
    assert measured["longest gap in the Lease, as the API server stored it"] == "1.00 s"


def ready_late(kind: Kind, at: float) -> Story:
    act = good_act(kind)
    rest = tuple(e for e in act.events if e.act != "ready")
    return with_act(kind, replace(act, events=(*rest, systemd(at, "ready"))))


def ended(kind: Kind, outcome: str, code: int) -> Story:
    return with_act(kind, replace(good_act(kind), outcome=outcome, code=code))


def without_seconds(*gone: int) -> Story:
    return replace(
        GOOD,
        beats=tuple(b for b in GOOD.beats if b.n not in gone),
        renewals=tuple(at for at in GOOD.renewals if int(at - ZERO) not in gone),
    )


BREAKS: dict[str, tuple[Callable[[], Story], str]] = {
    "not installed": (lambda: ended(Kind.INSTALL, "failed", 1), "1.0.0 is installed"),
    "a good release rolled back": (lambda: ended(Kind.GOOD, "rolled-back", 5), "1.1.0 is judged"),
    "a crash taken for good": (lambda: ended(Kind.CRASH, "complete", 0), "1.2.0, which crashes"),
    "a crash not restored": (lambda: ended(Kind.CRASH, "not-restored", 6), "1.2.0, which crashes"),
    "a slow rollback": (lambda: ready_late(Kind.CRASH, 25.3), "first crash to"),
    "a hang not rolled back": (lambda: ended(Kind.HANG, "failed", 1), "1.3.0, which hangs"),
    "a slow verdict": (lambda: ready_late(Kind.HANG, 45.1), "hang: restart to"),
    "a broken shim let in": (lambda: ended(Kind.BROKEN_INSIDE, "complete", 0), "1.4.0, broken"),
    "a machine that lags": (lambda: replace(GOOD, machine=seen(1.5)), "the machine sees"),
    "a machine that misses a switch": (
        lambda: replace(GOOD, machine=GOOD.machine[:3]),
        "the machine sees",
    ),
    "a moment with no release": (
        lambda: replace(
            GOOD, host=(*GOOD.host[:2], Sighting(at=ZERO + 9.0, release=""), *GOOD.host[2:])
        ),
        "host and machine always",
    ),
    "a failed beat": (
        lambda: replace(
            GOOD, beats=(*GOOD.beats[:-1], beat(57, ok=False))
        ),
        "heartbeats missed",
    ),
    "one late beat": (lambda: without_seconds(22), "heartbeats missed"),
    "a token refused": (lambda: replace(GOOD, refusals=1), "tokens the API"),
    "a skewed end": (
        lambda: replace(
            GOOD, ending=Ending(exit_code=1, release="1.1.0", inside="1.0.0", active="active")
        ),
        "in the end all",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_goes_wrong_breaks_its_promise_and_no_other(name: str) -> None:
    story, promise = BREAKS[name]
    (found,) = broken(story())
    assert found.startswith(promise)


def test_a_stop_of_the_lease_breaks_beats_and_gap() -> None:
    names = broken(without_seconds(22, 23))
    assert [name.split()[0] for name in names] == ["heartbeats", "longest"]


def test_a_gap_at_the_end_of_the_watch_is_a_gap() -> None:
    story = replace(GOOD, renewals=GOOD.renewals[:-3])
    assert max(b - a for a, b in renewal_gaps(story)) > 2.0
    assert [name.split()[0] for name in broken(story)] == ["longest"]


def test_where_nothing_was_seen_no_promise_is_kept_for_it() -> None:
    nothing = replace(
        GOOD, host=(), machine=(), beats=(), renewals=(), tokens=(), acts=GOOD.acts[:1]
    )
    kept = [promise.name for promise in promises(nothing) if promise.kept]
    assert kept == ["1.0.0 is installed", "in the end all run 1.1.0 and status knows no problem"]


def test_beats_that_stop_before_the_last_verdict_prove_nothing() -> None:
    story = replace(GOOD, beats=GOOD.beats[:20])
    assert [name.split()[0] for name in broken(story)] == ["heartbeats"]
