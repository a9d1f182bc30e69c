"""What records and histories mean for operations: the desk's readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.model import SlotName
from hostsync.operations.desk import INTERRUPTIONS, of_lines, of_restarts, told
from hostsync.operations.reboots import Restart
from hostsync.operations.report import Cause
from hostsync.record import Phase, Record, ReleaseId, Source, SourceKind
from hostsync.state import HistoryLine, Outcome
from tests.operations.specimens import PROPERTY


def a_line(outcome: Outcome, uid: str = "u", reason: str = "") -> HistoryLine:
    source = Source(kind=SourceKind.OPERATION, name="op", uid=uid)
    return HistoryLine(
        order="o", agent="hostsync", source=source, version="1.1.0", digest="d",
        previous_version="1.0.0", outcome=outcome, reason=reason, started_at=0, ended_at=1,
    )  # fmt: skip


def a_record(phase: Phase, reason: str = "") -> Record:
    release = ReleaseId(version="1.1.0", digest="d")
    return Record(
        order="o", agent="hostsync", candidate=release, previous=release, phase=phase,
        previous_slot=SlotName.BLUE, target_slot=SlotName.GREEN, last_good_slot=None,
        evicts=False, created_at=0, updated_at=0, reason=reason,
    )  # fmt: skip


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_of_an_order_is_told_in_words_of_its_own(phase: Phase) -> None:
    said = told(a_record(phase))
    assert said
    assert said not in {told(a_record(other)) for other in Phase if other is not phase}
    assert told(a_record(phase, "it crashed")).endswith(": it crashed")


def test_an_order_that_was_cut_off_is_no_end_until_it_has_happened_thrice() -> None:
    cut = a_line(Outcome.INTERRUPTED, reason="interrupted while staging")
    for times in range(INTERRUPTIONS):
        assert of_lines([cut] * times) == {}
    report = of_lines([cut] * INTERRUPTIONS)["u"]
    assert (report.phase, report.cause) == ("Failed", Cause.EXECUTION_FAILED)
    assert "interrupted while staging" in report.message


def test_interruptions_are_counted_for_each_operation() -> None:
    cut = [a_line(Outcome.INTERRUPTED, uid) for uid in ("u", "v", "w", "u", "v")]
    assert of_lines(cut) == {}


def test_an_end_after_interruptions_is_the_end() -> None:
    found = of_lines([a_line(Outcome.INTERRUPTED), a_line(Outcome.COMPLETE)])
    assert found["u"].phase == "Complete"


@PROPERTY
@given(st.lists(st.sampled_from(Outcome), max_size=6))
def test_lines_of_others_change_nothing(outcomes: list[Outcome]) -> None:
    mine = [a_line(Outcome.ROLLED_BACK, reason="crashed")]
    theirs = [a_line(outcome, "v") for outcome in outcomes]
    assert of_lines([*theirs, *mine, *theirs])["u"] == of_lines(mine)["u"]


def test_a_restart_is_an_end_only_once_it_has_one() -> None:
    begun = Restart(uid="u", operation="op", machine="kube1", before="", started_at=0)
    done = Restart(uid="v", operation="p", machine="kube1", before="", started_at=0, ended_at=1)
    bad = Restart(
        uid="w", operation="q", machine="kube1", before="", started_at=0, ended_at=1,
        trouble="it never became ready",
    )  # fmt: skip
    found = of_restarts([begun, done, bad])
    assert set(found) == {"v", "w"}
    assert (found["v"].phase, found["w"].phase) == ("Complete", "Failed")
    assert found["w"].cause is Cause.EXECUTION_FAILED
    assert "never became ready" in found["w"].message
