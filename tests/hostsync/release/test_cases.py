"""The generated cases of `make fuzz`, a few of them."""

from __future__ import annotations

import pytest

from fuzz.cases import run_chunk


@pytest.mark.slow
def test_generated_archives_are_staged_exactly_if_nothing_is_wrong_with_them() -> None:
    ends = run_chunk(seed=0, number=0, cases=400)
    assert ends.total() == 400
    assert {name.split()[1] for name in ends} == {"staged", "refused"}
