"""The timeline says what happened, when, and in which order."""

from dataclasses import replace

import pytest

from e2e.demo.model import Act, Kind, Moment
from e2e.demo.timeline import first_crash, ready_again, restart_asked, timeline
from tests.e2e_demo.stories import GOOD, ZERO, good_act, systemd

TRIED = ("switch", "seen inside", "restart")
ROLLED_BACK = ("verdict", "rollback", "seen inside", "ready", "exit 5")


def words(kind: Kind) -> list[str]:
    return [moment.what for moment in timeline(GOOD, good_act(kind))]


def detail(kind: Kind, what: str) -> str:
    return next(m.detail for m in timeline(GOOD, good_act(kind)) if m.what == what)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.INSTALL, ["switch", "seen inside", "exit 0", "ready"]),
        (Kind.GOOD, ["switch", "seen inside", "restart", "ready", "verdict", "exit 0"]),
        (
            Kind.CRASH,
            [*TRIED, "crash", *ROLLED_BACK],
        ),
        (
            Kind.HANG,
            [*TRIED, *ROLLED_BACK],
        ),
        (Kind.BROKEN_INSIDE, ["exit 3"]),
    ],
)
def test_each_order_has_its_moments_in_the_order_of_time(kind: Kind, expected: list[str]) -> None:
    assert words(kind) == expected
    after = [moment.after for moment in timeline(GOOD, good_act(kind))]
    assert after == sorted(after)


def test_details_carry_the_numbers_and_the_reasons() -> None:
    assert detail(Kind.CRASH, "seen inside") == "kube1: 1.2.0, 4 ms later"
    assert detail(Kind.CRASH, "crash") == "code=exited, status=1/FAILURE"
    assert detail(Kind.CRASH, "ready") == "1.50 s after the first crash"
    assert detail(Kind.HANG, "verdict") == "bad: it was not ready within 10 s"
    assert detail(Kind.BROKEN_INSIDE, "exit 3").endswith("its shim fails in kube1")


def test_the_machine_s_eye_being_first_is_not_told_as_time_travel() -> None:
    story = replace(GOOD, host=GOOD.machine, machine=GOOD.host)
    moments = timeline(story, good_act(Kind.GOOD))
    switch, inside = (next(m for m in moments if m.what == w) for w in ("switch", "seen inside"))
    assert (inside.after, inside.detail) == (switch.after, "kube1: 1.1.0, 0 ms later")


def test_a_process_that_ends_because_it_was_told_to_is_no_crash() -> None:
    crash = first_crash(good_act(Kind.CRASH))
    assert crash is not None
    assert crash.at == ZERO + 22.2
    told = (systemd(32.0, "stopping"), systemd(32.1, "exited"), systemd(32.2, "starting"))
    assert first_crash(replace(good_act(Kind.HANG), events=told)) is None


def test_without_the_judge_s_words_systemd_s_are_enough() -> None:
    def mute(act: Act) -> Act:
        return replace(act, events=tuple(e for e in act.events if e.object == "systemd"))

    again, asked = ready_again(mute(good_act(Kind.CRASH))), restart_asked(mute(good_act(Kind.HANG)))
    assert again is not None
    assert asked is not None
    assert (again.at, asked.at) == (ZERO + 23.7, ZERO + 32.01)


def test_an_order_that_had_to_be_repeated_says_so() -> None:
    moments = timeline(GOOD, replace(good_act(Kind.GOOD), busy=2))
    assert moments[0] == Moment(after=0.0, what="busy", detail="turned away 2 times, ordered again")
