"""The verdict: any end of the process before it is a failure, and only time makes it good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hostsync.activation.judge import Bad, Good, Sample, Undecided, Verdict, Watch, judge
from hostsync.config import Health, Readiness
from hostsync.ports import UnitState

HEALTH = Health(readiness=Readiness.NOTIFY, start_seconds=20, window_seconds=5, stable_seconds=3)
STABLE = replace(HEALTH, readiness=Readiness.STABLE)
OLD, NEW = "a" * 32, "b" * 32
UP = UnitState(
    load="loaded", active="active", sub="running", main_pid=7, invocation=NEW, restarts=0,
    result="success",
)  # fmt: skip
STARTING = replace(UP, active="activating", sub="start")
BEFORE = replace(UP, invocation=OLD, main_pid=6)


def run(
    *units: UnitState, health: Health = HEALTH, step: float = 1.0, job: str | None = "done"
) -> Verdict:
    """Judge samples one `step` of seconds apart until a verdict falls or they run out."""
    watch = Watch(health=health, started=0.0, baseline=OLD)
    verdict: Verdict = Undecided(watch, 0)
    for number, unit in enumerate(units):
        at = number * step
        verdict = judge(watch, Sample(at=at, unit=unit, job=job, runs_candidate=True))
        if not isinstance(verdict, Undecided):
            return verdict
        watch = verdict.watch
    return verdict


def test_a_service_that_stays_up_for_the_whole_window_is_good() -> None:
    assert isinstance(run(BEFORE, STARTING, *[UP] * 7), Good)


def test_one_look_at_an_active_service_is_no_verdict() -> None:
    assert isinstance(run(UP), Undecided)


@pytest.mark.parametrize(
    "end",
    [
        replace(UP, active="inactive", sub="dead", main_pid=0),
        replace(UP, active="deactivating", sub="stop-sigterm"),
        replace(UP, active="failed", sub="failed", main_pid=0, result="exit-code"),
        replace(UP, active="activating", sub="auto-restart", main_pid=0, restarts=1),
        replace(UP, restarts=1, main_pid=9),
        replace(UP, invocation="c" * 32, main_pid=9),
        replace(UP, main_pid=9),
        replace(UP, main_pid=0),
    ],
    ids=["exit-0", "stops", "fails", "restarts", "was-restarted", "by-hand", "other-pid", "pid-0"],
)
def test_any_end_of_the_process_before_the_verdict_is_bad(end: UnitState) -> None:
    assert isinstance(run(STARTING, UP, UP, end), Bad)
    assert isinstance(run(STARTING, UP, UP, end, health=STABLE), Bad)


def test_a_crash_just_before_the_window_ends_is_bad_however_rare_crashes_are() -> None:
    crashed = replace(UP, main_pid=9, restarts=1)
    assert isinstance(run(UP, UP, crashed, step=2.4), Bad)


def test_a_service_that_never_reports_is_bad_at_its_start_deadline_and_not_before() -> None:
    assert isinstance(run(*[STARTING] * 20), Undecided)
    verdict = run(*[STARTING] * 21)
    assert isinstance(verdict, Bad)
    assert "20 s" in verdict.reason


def test_a_slow_but_healthy_start_is_good() -> None:
    assert isinstance(run(*[STARTING] * 19, *[UP] * 7), Good)


@pytest.mark.parametrize("job", ["failed", "timeout", "canceled", "dependency", "skipped"])
def test_a_restart_job_that_did_not_succeed_is_bad(job: str) -> None:
    assert isinstance(run(BEFORE, job=job), Bad)


def test_the_old_process_being_stopped_is_no_failure_of_the_candidate() -> None:
    stopping = replace(BEFORE, active="deactivating", sub="stop-sigterm")
    gone = replace(BEFORE, active="inactive", sub="dead", main_pid=0)
    assert isinstance(run(BEFORE, stopping, gone, STARTING, *[UP] * 7), Good)


def test_no_process_yet_while_systemd_prepares_the_start_is_not_a_failure() -> None:
    preparing = replace(STARTING, sub="start-pre", main_pid=0)
    assert isinstance(run(preparing, STARTING, *[UP] * 7), Good)


def test_a_ready_service_that_runs_something_else_is_bad() -> None:
    watch = Watch(health=HEALTH, started=0.0, baseline=OLD)
    verdict = judge(watch, Sample(at=1.0, unit=UP, job="done", runs_candidate=False))
    assert isinstance(verdict, Bad)


def test_without_a_readiness_report_the_same_process_must_stay_for_the_stable_time() -> None:
    assert isinstance(run(*[UP] * 8, health=STABLE), Undecided)
    verdict = run(*[UP] * 9, health=STABLE)
    assert isinstance(verdict, Good)
    assert verdict.ready_after == 3.0


units = st.builds(
    UnitState,
    load=st.just("loaded"),
    active=st.sampled_from(["active", "activating", "deactivating", "inactive", "failed"]),
    sub=st.sampled_from(["running", "start", "start-pre", "dead", "auto-restart", "failed"]),
    main_pid=st.sampled_from([0, 7, 8]),
    invocation=st.sampled_from([OLD, NEW, "c" * 32, ""]),
    restarts=st.sampled_from([0, 0, 0, 1]),
    result=st.sampled_from(["success", "exit-code"]),
)


@given(st.lists(units, max_size=12), st.sampled_from([HEALTH, STABLE]))
def test_only_one_uninterrupted_run_over_the_whole_window_is_ever_good(
    seen: list[UnitState], health: Health
) -> None:
    verdict = run(*seen, health=health)
    if isinstance(verdict, Good):
        run_length = int(health.window_seconds) + 1
        tail = seen[: next(n for n in range(1, len(seen) + 1) if _good(seen[:n], health))]
        kept = tail[-run_length:]
        assert {u.active for u in kept} == {"active"}
        assert len({(u.main_pid, u.invocation) for u in kept}) == 1
        assert kept[0].main_pid != 0
        assert kept[0].invocation not in (OLD, "")


def _good(seen: list[UnitState], health: Health) -> bool:
    return isinstance(run(*seen, health=health), Good)


@given(st.lists(units, min_size=25, max_size=30))
def test_every_trial_ends(seen: list[UnitState]) -> None:
    never_started = all(u.invocation in ("", OLD) or u.active == "deactivating" for u in seen)
    verdict = run(*seen)
    assert isinstance(verdict, (Bad, Good)) or (never_started and len(seen) <= 20)
