"""The order of versions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.release.version import is_lower

RISING = (
    "0.9",
    "1.0-1.build",
    "1.0-nightly",
    "1.0-nightly.2",
    "1.0-nightly.10",
    "1.0-nightly.x",
    "1.0.dev1",
    "1.0.dev2",
    "1.0-alpha.dev1",
    "1.0-alpha.1",
    "1.0a2",
    "1.0b1",
    "1.0-rc.1",
    "1.0rc2",
    "1.0",
    "1.0.post1",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
)


@pytest.mark.parametrize(("low", "high"), list(pairwise(RISING)))
def test_versions_rise(low: str, high: str) -> None:
    assert is_lower(low, high)
    assert not is_lower(high, low)


@pytest.mark.parametrize(
    ("one", "same"),
    [("1.0", "1.0.0"), ("v1.2.3", "1.2.3+build.7"), ("1.0rc1", "1.0-rc.1"), ("1.0a", "1.0a0")],
)
def test_two_spellings_of_one_version_are_equal(one: str, same: str) -> None:
    assert not is_lower(one, same)
    assert not is_lower(same, one)


@pytest.mark.parametrize("text", ["", "latest", "1.0~x", "x1", "1..0", "1.0\n", "1.0_x", "9" * 19])
def test_what_has_no_order_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no version with an order"):
        is_lower(text, "1.0")
    with pytest.raises(ValueError, match="no version with an order"):
        is_lower("1.0", text)


@given(st.tuples(*[st.integers(0, 20)] * 3), st.tuples(*[st.integers(0, 20)] * 3))
def test_final_versions_are_ordered_as_their_numbers(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    assert is_lower(".".join(map(str, one)), ".".join(map(str, other))) is (one < other)
