"""How long a run may take: eight seconds, counted from its start, over every shim it passes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from credential_shim import gate, issue, serving
from credential_shim.clock import Deadline
from credential_shim.serving import HARD_SECONDS, REEXEC_VARIABLE, _hard_stop
from tests.credential_shim.fakes import FakeClock

STARTS = st.floats(min_value=0, max_value=1e9)


def test_a_run_ends_eight_seconds_after_its_start() -> None:
    assert _hard_stop({}, 100.0) == 108.0


@given(start=STARTS, text=st.text(max_size=24) | st.floats().map(str))
def test_no_mark_of_a_handover_makes_a_run_longer(start: float, text: str) -> None:
    stop = _hard_stop({REEXEC_VARIABLE: text}, start)
    assert start < stop <= start + HARD_SECONDS


@given(start=STARTS, handovers=st.lists(st.floats(min_value=0, max_value=2), max_size=4))
def test_a_run_that_is_handed_on_has_the_time_that_is_left(
    start: float, handovers: list[float]
) -> None:
    first = _hard_stop({}, start)
    for now in itertools.accumulate(handovers, initial=start):
        environ = {REEXEC_VARIABLE: f"{first:.3f}"}
        if now < first - 0.001:
            assert _hard_stop(environ, now) <= first + 0.001


@pytest.mark.parametrize("waited", [0.0, 1.0, gate.WAIT_SECONDS])
def test_after_the_longest_wait_at_the_gate_there_is_time_for_a_fetch(waited: float) -> None:
    clock = FakeClock()
    work = HARD_SECONDS - serving._MARGIN_SECONDS
    deadline = Deadline(clock, clock.monotonic() + work)
    clock.advance(waited)
    assert deadline.remaining() >= issue.FETCH_RESERVE
