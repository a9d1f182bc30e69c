"""What is common to the answers of all token endpoints."""

import json

from credential_shim.errors import MalformedError
from credential_shim.exchange import Answer
from credential_shim.expiry import clock_offset, expires_at, parse_http_date
from credential_shim.tokens import Token, require_token


def token_of(value: dict[str, object], answer: Answer, now: float) -> Token:
    """Return the token in ``value``, the object in a 200; raises MalformedError. Pure."""
    token = require_token(value.get("access_token"))
    if str(value.get("token_type") or "Bearer").lower() != "bearer":
        raise MalformedError("the identity endpoint's token is not a bearer token")
    issuer_now = parse_http_date(answer.headers.get("date", ""))
    expires = expires_at(value, now, issuer_now)
    offset = clock_offset(now, issuer_now)
    warnings = (_clock_warning(offset),) if offset else ()
    return Token(token, expires=expires, warnings=warnings)


def retry_after(answer: Answer, now: float) -> float | None:
    """Return the seconds that Retry-After asks for, as number or date; None without one."""
    text = answer.headers.get("retry-after", "")
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    instant = parse_http_date(text)
    if instant is None:
        return None
    issuer_now = parse_http_date(answer.headers.get("date", ""))
    return max(0.0, instant - (now if issuer_now is None else issuer_now))


def json_object(answer: Answer) -> dict[str, object] | None:
    """Return the JSON object that is the answer's body; None for anything else."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_page(answer: Answer) -> bool:
    """Say whether the answer looks like a web page: a portal's or a proxy's."""
    return answer.body.lstrip()[:1] == b"<" or "html" in answer.headers.get("content-type", "")


def fault_code(fault: dict[str, object]) -> str:
    """Return the short code only: descriptions are prose and may quote what was sent."""
    code = fault.get("error")
    plain = isinstance(code, str) and len(code) <= 64 and code.replace("_", "").isalnum()
    return str(code) if plain else ""


def _clock_warning(offset: float) -> str:
    direction = "behind" if offset > 0 else "ahead"
    return (
        f"the local clock is {abs(offset):.0f} s {direction} the identity endpoint's; the token's "
        "expiry is corrected, but the API server may still refuse it: set the clock"
    )
