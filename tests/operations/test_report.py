"""Status documents: what they say, what they keep, and that saying it once is enough."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.operations.operation import Condition, Operation, Phase, Target, rfc3339
from hostsync.operations.report import (
    MESSAGE_LIMIT,
    Cause,
    Report,
    entry_patch,
    failed,
    is_told,
    of_history,
    pending,
    shown,
    status_patch,
    succeeded,
    under_way,
)
from hostsync.record import Source
from hostsync.state import HistoryLine, Outcome
from tests.operations.specimens import (
    CANARY,
    HOSTILE_TEXTS,
    ME,
    PHASES,
    PROPERTY,
    URL,
    a_selection,
    an_operation,
    merged,
    stored,
)

NOW = 1_800_000_000.0
THEN = rfc3339(NOW - 500)
REPORTS = st.builds(
    Report, phase=st.sampled_from(list(Phase)[1:]), cause=st.sampled_from(Cause),
    message=HOSTILE_TEXTS,
)  # fmt: skip
CONDITIONS = st.lists(
    st.builds(
        Condition, type=st.sampled_from(["Completed", "Ready", "Seen"]),
        status=st.sampled_from(["True", "False", "Unknown"]), reason=st.sampled_from(["A", "B"]),
        message=st.sampled_from(["", "m"]), lastTransitionTime=st.just(THEN),
        observedGeneration=st.integers(0, 3),
    ),
    max_size=3, unique_by=lambda each: each.type,
)  # fmt: skip


def status_of(operation: Operation) -> dict[str, object]:
    """The status that a server holds for this operation."""
    return {
        "phase": operation.phase,
        "message": operation.message,
        **({"startedAt": operation.started} if operation.started else {}),
        "conditions": [
            {name: getattr(each, name) for name in each.__struct_fields__}
            for each in operation.conditions
        ],
    }


def written(operation: Operation, report: Report) -> tuple[dict[str, Any], Operation]:
    """The status after the patch was merged, and the operation as it is read then."""
    patch = status_patch(operation, report, NOW)
    after = merged(status_of(operation), patch["status"])
    assert isinstance(after, dict)
    return after, stored(operation, after)


@PROPERTY
@given(PHASES, CONDITIONS, HOSTILE_TEXTS, REPORTS)
def test_what_was_written_counts_as_told_and_as_nothing_else(
    phase: str, conditions: list[Condition], message: str, report: Report
) -> None:
    operation = an_operation(phase=phase, conditions=tuple(conditions), message=shown(message))
    _, after = written(operation, report)
    assert is_told(after, report, ME.machine)
    assert not is_told(after, failed(report.cause, report.message + "!x"), ME.machine) or (
        len(report.message) >= MESSAGE_LIMIT - 1
        or shown(report.message + "!x") == shown(report.message)
    )


@PROPERTY
@given(CONDITIONS, REPORTS)
def test_conditions_of_others_are_kept_as_they_were(
    conditions: list[Condition], report: Report
) -> None:
    _, after = written(an_operation(conditions=tuple(conditions)), report)
    theirs = [each for each in conditions if each.type != "Completed"]
    assert [each for each in after.conditions if each.type != "Completed"] == theirs
    assert [each.type for each in after.conditions].count("Completed") == 1


@PROPERTY
@given(REPORTS)
def test_an_entry_that_was_applied_counts_as_told(report: Report) -> None:
    patch: Any = entry_patch(a_selection(), report, ME.machine, NOW)
    after = stored(a_selection(), patch["status"])
    assert is_told(after, report, ME.machine)
    assert not is_told(after, report, "host-2")


@PROPERTY
@given(HOSTILE_TEXTS)
def test_a_message_is_one_bounded_line_without_control_characters(text: str) -> None:
    said = shown(text)
    assert len(said) <= MESSAGE_LIMIT
    assert len(said.splitlines()) <= 1
    assert not [c for c in said if unicodedata.category(c) in ("Cc", "Cs") and c != "\t"]
    said.encode()


@PROPERTY
@given(st.text(max_size=60))
def test_a_message_never_shows_the_query_of_a_url(text: str) -> None:
    for message in (URL + text, f"cannot fetch {URL}: {text}", f"{text} {URL}"):
        assert CANARY not in shown(message)


def test_times_and_condition_follow_an_operation_through_its_life() -> None:
    status, operation = written(an_operation(generation=4), pending("waits"))
    assert "startedAt" not in status
    assert status["phase"] == "Pending"
    status, operation = written(operation, under_way("staging"))
    assert status["startedAt"] == rfc3339(NOW)
    assert "completedAt" not in status
    (condition,) = status["conditions"]
    assert condition == {
        "type": "Completed", "status": "False", "reason": "InProgress", "message": "staging",
        "lastTransitionTime": rfc3339(NOW), "observedGeneration": 4,
    }  # fmt: skip
    status, operation = written(operation, succeeded("done"))
    assert (status["phase"], status["completedAt"]) == ("Complete", rfc3339(NOW))
    assert (status["conditions"][0]["status"], operation.is_over) == ("True", True)


def test_the_transition_time_changes_with_the_condition_status_alone() -> None:
    old = Condition(type="Completed", status="False", reason="Pending", lastTransitionTime=THEN)
    status, operation = written(an_operation(conditions=(old,)), under_way("staging"))
    assert status["conditions"][0]["lastTransitionTime"] == THEN
    status, _ = written(operation, succeeded("done"))
    assert status["conditions"][0]["lastTransitionTime"] == rfc3339(NOW)
    status, _ = written(operation, failed(Cause.DAEMON_FAILED, "bad"))
    assert status["conditions"][0]["lastTransitionTime"] == THEN


def test_the_start_is_written_once() -> None:
    status, _ = written(an_operation(started=THEN), under_way("judging"))
    assert status["startedAt"] == THEN


def test_a_refusal_before_anything_has_begun_ends_where_it_started() -> None:
    status, _ = written(an_operation(), failed(Cause.INVALID_PARAMETERS, "no"))
    assert status["startedAt"] == status["completedAt"] == rfc3339(NOW)
    assert status["conditions"][0]["reason"] == "InvalidParameters"


def test_a_patch_holds_for_the_object_as_it_was_seen_and_touches_its_status_alone() -> None:
    patch = status_patch(an_operation(uid="u", version="9"), pending("waits"), NOW)
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "9"}
    assert set(patch) == {"metadata", "status"}


def test_an_entry_names_this_machine_and_this_object_and_claims_nothing_of_the_whole() -> None:
    theirs = Target(machineRef="host-2", phase="Complete")
    patch: Any = entry_patch(a_selection(targets=(theirs,)), under_way("x"), ME.machine, NOW)
    assert patch["metadata"] == {"name": "op", "uid": "uid-op", "resourceVersion": "7"}
    assert set(patch["status"]) == {"targets"}
    (entry,) = patch["status"]["targets"]
    assert (entry["machineRef"], entry["observedGeneration"]) == (ME.machine, 1)
    assert entry["startedAt"] == rfc3339(NOW)


def test_an_entry_keeps_its_start_and_gets_an_end() -> None:
    mine = Target(machineRef=ME.machine, phase="InProgress", startedAt=THEN)
    patch: Any = entry_patch(a_selection(targets=(mine,)), succeeded("x"), ME.machine, NOW)
    (entry,) = patch["status"]["targets"]
    assert (entry["startedAt"], entry["completedAt"]) == (THEN, rfc3339(NOW))
    patch = entry_patch(a_selection(), pending("waits"), ME.machine, NOW)
    assert not {"startedAt", "completedAt"} & set(patch["status"]["targets"][0])


@pytest.mark.parametrize(
    ("outcome", "phase", "cause", "word"),
    [
        (Outcome.COMPLETE, "Complete", Cause.SUCCEEDED, "in use"),
        (Outcome.ROLLED_BACK, "Failed", Cause.DAEMON_FAILED, "1.0.0 was restored"),
        (Outcome.NOT_RESTORED, "Failed", Cause.DAEMON_FAILED, "NOT restored"),
        (Outcome.FAILED, "Failed", Cause.EXECUTION_FAILED, "nothing was switched"),
        (Outcome.INTERRUPTED, "Failed", Cause.EXECUTION_FAILED, "nothing was switched"),
    ],
)
def test_every_outcome_of_an_order_has_its_phase_and_reason(
    outcome: Outcome, phase: str, cause: Cause, word: str
) -> None:
    line = HistoryLine(
        order="o", agent="hostsync", source=Source(uid="u"), version="1.1.0", digest="",
        previous_version="1.0.0", outcome=outcome, reason="" if word == "in use" else "why",
        started_at=0, ended_at=1,
    )  # fmt: skip
    report = of_history(line)
    assert (report.phase, report.cause) == (phase, cause)
    assert word in report.message
    assert report.is_final
