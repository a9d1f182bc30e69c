"""Expiry in all its forms."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credential_shim.errors import MalformedError
from credential_shim.expiry import (
    clock_offset,
    expires_at,
    parse_http_date,
    parse_instant,
    parse_seconds,
)

INSTANT = 1740028277.0  # 2025-02-20 05:11:17 UTC


@pytest.mark.parametrize(
    "value",
    [
        1740028277,
        1740028277.0,
        "1740028277",
        " 1740028277 ",
        "02/20/2025 05:11:17 +00:00",
        "2/20/2025 5:11:17 AM +00:00",
        "2/20/2025 5:11:17 AM",
        "2025-02-20T05:11:17Z",
        "2025-02-20T05:11:17.0000000Z",
        "2025-02-20T05:11:17",
        "2025-02-20 05:11:17",
        "2025-02-20T07:11:17+02:00",
        "2025-02-19T23:41:17-0530",
    ],
)
def test_every_form_in_the_wild_names_the_same_instant(value: object) -> None:
    assert parse_instant(value) == INSTANT


def test_seven_fractional_digits_are_kept() -> None:
    assert parse_instant("2025-02-20T05:11:17.1234567Z") == pytest.approx(INSTANT + 0.1234567)


@pytest.mark.parametrize(
    ("text", "hour"), [("12:00:00 AM", 0), ("12:00:00 PM", 12), ("1:00:00 PM", 13)]
)
def test_the_twelve_hour_clock_knows_noon_and_midnight(text: str, hour: int) -> None:
    expected = datetime(2025, 2, 20, hour, tzinfo=UTC).timestamp()
    assert parse_instant(f"2/20/2025 {text} +00:00") == expected


@pytest.mark.parametrize("value", [None, ""])
def test_an_absent_or_empty_value_is_none(value: object) -> None:
    assert parse_instant(value) is None
    assert parse_seconds(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "soon", "20/20/2025 05:11:17 +00:00", "2025-02-30T00:00:00Z", "2025-02-20",
        "2025-02-20T25:00:00Z",
        "13:00:00", "2/20/2025 13:11:17 PM +00:00", "0/20/2025 1:00:00 AM", -1, "-1", True, [], {},
        float("nan"), float("inf"), 1740028277000, "1740028277000", "\u0661\u0667\u0664",
        "2025-02-20T05:11:17+99:99",
    ],
)  # fmt: skip
def test_anything_else_is_malformed(value: object) -> None:
    with pytest.raises(MalformedError):
        parse_instant(value)


@settings(max_examples=50)
@given(st.one_of(st.text(max_size=40), st.integers(), st.floats(), st.binary(max_size=5)))
def test_no_value_escapes_as_another_error(value: object) -> None:
    try:
        parsed = parse_instant(value)
    except MalformedError:
        return
    assert parsed is None or parsed == parsed  # noqa: PLR0124 - not NaN


@settings(max_examples=50)
@given(st.integers(0, 4_000_000_000))
def test_every_second_survives_the_slashed_and_the_iso_form(epoch: int) -> None:
    moment = datetime.fromtimestamp(epoch, UTC)
    assert parse_instant(moment.strftime("%m/%d/%Y %H:%M:%S +00:00")) == epoch
    assert parse_instant(moment.strftime("%m/%d/%Y %I:%M:%S %p +00:00")) == epoch
    assert parse_instant(moment.isoformat()) == epoch


@settings(max_examples=50)
@given(st.integers(0, 4_000_000_000))
def test_http_dates_are_read(epoch: int) -> None:
    assert parse_http_date(formatdate(epoch, usegmt=True)) == epoch


@pytest.mark.parametrize(
    "text", ["", "now", "Thu, 20 Xxx 2025 05:11:17 GMT", "Thu, 31 Feb 2025 05:11:17 GMT"]
)
def test_other_dates_are_none(text: str) -> None:
    assert parse_http_date(text) is None


def test_expires_on_is_preferred_to_expires_in() -> None:
    for other in ("99999", "garbage", -1):
        answer: dict[str, object] = {"expires_on": str(int(INSTANT)), "expires_in": other}
        assert expires_at(answer, INSTANT - 100, None) == INSTANT


@pytest.mark.parametrize("on", [None, ""])
def test_expires_in_serves_where_expires_on_is_absent_or_empty(on: object) -> None:
    assert expires_at({"expires_on": on, "expires_in": 3599}, 1000.0, None) == 4599.0


def test_a_wrong_local_clock_is_corrected_by_the_issuers_date() -> None:
    issuer_now = INSTANT - 3600
    for offset in (-7200.0, -61.0, 61.0, 7200.0):
        local_now = issuer_now - offset
        ends = expires_at({"expires_on": INSTANT}, local_now, issuer_now)
        assert ends - local_now == 3600


def test_a_difference_within_a_minute_is_left_alone() -> None:
    assert clock_offset(1000.0, 1060.0) == 0
    assert clock_offset(1000.0, None) == 0
    assert clock_offset(1000.0, 1061.0) == 61
    assert expires_at({"expires_on": 5000}, 1000.0, 1060.0) == 5000


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"expires_on": "", "expires_in": ""},
        {"expires_on": 999},
        {"expires_on": 1000},
        {"expires_in": 0},
        {"expires_in": "-5"},
        {"expires_on": "garbage", "expires_in": 3600},
    ],
)
def test_an_expired_or_timeless_token_is_refused_and_never_inflated(
    answer: dict[str, object],
) -> None:
    with pytest.raises(MalformedError):
        expires_at(answer, 1000.0, None)
