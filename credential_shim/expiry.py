"""When a token ends, from the many ways in which issuers say so.

Forms seen: seconds since the epoch as number or string, an empty string, ``M/d/yyyy`` with a 12
or 24 hour clock, ISO 8601 with up to seven fractional digits, with a zone or without (then UTC).
An absolute time is preferred, because ``expires_in`` counts from issuance, and a cached answer
was issued earlier. A time in the past means an expired token and is never moved.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from credential_shim.errors import MalformedError

SKEW_SECONDS = 60.0
"""From this difference to the issuer's clock on, the local clock is taken to be wrong."""

_LATEST = 32503680000.0  # The year 3000; milliseconds taken for seconds end up far beyond it.
# Compiled at their first use, which for the usual number of seconds never comes.
_SLASHED = (
    r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})[ ]"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2})(?:[ ](?P<half>[AP]M))?"
    r"(?:[ ]?(?P<zone>Z|[+-]\d{2}:?\d{2}))?"
)
_ISO = (
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})[T ]"
    r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<fraction>[.]\d{1,9})?"
    r"(?:[ ]?(?P<zone>Z|[+-]\d{2}:?\d{2}))?"
)
_HTTP_DATE = (
    r"[A-Z][a-z]{2}, (?P<day>\d{2}) (?P<month>[A-Z][a-z]{2}) (?P<year>\d{4}) "
    r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2}) GMT"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def expires_at(answer: dict[str, object], now: float, issuer_now: float | None) -> float:
    """Return the instant, on the local clock, at which the token of ``answer`` ends.

    ``now`` is the local time of the answer, ``issuer_now`` the issuer's as by its Date header.
    Raises MalformedError when no usable time is given or it is past.
    """
    on = parse_instant(answer.get("expires_on"))
    if on is not None:
        ends = on - clock_offset(now, issuer_now)
    else:
        seconds = parse_seconds(answer.get("expires_in"))
        if seconds is None:
            raise MalformedError("the identity endpoint's answer names no expiry of the token")
        ends = now + seconds
    if ends <= now:
        raise MalformedError("the identity endpoint answered with an expired token")
    return ends


def clock_offset(now: float, issuer_now: float | None) -> float:
    """Return by how many seconds the issuer is ahead, 0 where that is within tolerance."""
    if issuer_now is None or abs(issuer_now - now) <= SKEW_SECONDS:
        return 0.0
    return issuer_now - now


def parse_instant(value: object) -> float | None:
    """Return seconds since the epoch; None for an absent or empty value.

    Raises MalformedError for anything that is not a time in one of the known forms.
    """
    if value is None or value == "":
        return None
    number = _number(value)
    if number is not None:
        return number
    text = value.strip() if isinstance(value, str) else ""
    match = re.fullmatch(_SLASHED, text, re.ASCII) or re.fullmatch(_ISO, text, re.ASCII)
    if match is None:
        raise MalformedError("the identity endpoint's expires_on is not a time in a known form")
    return _from_match(match.groupdict())


def parse_seconds(value: object) -> float | None:
    """Return a duration in seconds; None when absent or empty. Raises MalformedError."""
    if value is None or value == "":
        return None
    number = _number(value)
    if number is None:
        raise MalformedError("the identity endpoint's expires_in is not a number of seconds")
    return number


def parse_http_date(text: str) -> float | None:
    """Return the epoch seconds of an IMF-fixdate (RFC 9110 §5.6.7); None for anything else."""
    match = re.fullmatch(_HTTP_DATE, text, re.ASCII)
    if match is None or match["month"] not in _MONTHS:
        return None
    fields: dict[str, str | None] = dict(match.groupdict())
    fields["month"] = str(_MONTHS.index(match["month"]) + 1)
    try:
        return _from_match(fields)
    except MalformedError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= 12):
            return None
        value = int(text)
    if not isinstance(value, int | float):
        return None
    if not 0 <= value <= _LATEST:  # also false for NaN
        raise MalformedError("the identity endpoint's expiry is out of range")
    return float(value)


def _from_match(fields: dict[str, str | None]) -> float:
    hour = int(fields["hour"] or 0)
    half = fields.get("half")
    if half and not 1 <= hour <= 12:
        raise MalformedError("the identity endpoint's expires_on has no such hour")
    if half:
        hour = hour % 12 + (12 if half == "PM" else 0)
    try:
        instant = datetime(
            int(fields["year"] or 0),
            int(fields["month"] or 0),
            int(fields["day"] or 0),
            hour,
            int(fields["minute"] or 0),
            int(fields["second"] or 0),
            tzinfo=_zone(fields.get("zone")),
        ).timestamp()
    except ValueError as error:
        raise MalformedError("the identity endpoint's expires_on is no such time") from error
    return instant + float(fields.get("fraction") or 0)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))
