"""Azure managed identity from the instance metadata service (IMDS).

Contract: GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=ID with at most one
of client_id, object_id, msi_res_id, header ``Metadata: true``; ``resource`` is the bare id.
The service allows 20 requests a second and 5 at once per VM, and needs up to 70 s for its own
update (410). What each answer deserves is the table in ``read_answer``.
"""

import json

from credential_shim._version import VERSION
from credential_shim.clock import Deadline
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
)
from credential_shim.exchange import Answer
from credential_shim.expiry import clock_offset, expires_at, parse_http_date
from credential_shim.identity import Identity
from credential_shim.tokens import Token, require_token

PATH = "/metadata/identity/oauth2/token"
API_VERSION = "2018-02-01"

ATTEMPT_SECONDS = 5.0
_LEAST_ATTEMPT_SECONDS = 0.25
"""An attempt shorter than this is not worth a wait."""
UPDATING_HOLD = 10.0
"""One request in this time finds out when an updating service is back."""
THROTTLED_HOLD = 2.0

_MANY = 99
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from credential_shim.ports import Clock, Transport


class ImdsSource:
    """Tokens for the system-assigned identity or the one user-assigned identity selected."""

    def __init__(self, identity: Identity, clock: "Clock", transport: "Transport") -> None:
        self._identity = identity
        self._clock = clock
        self._transport = transport

    def fetch(self, seconds: float) -> Token:
        """See ``ports.Source.fetch``."""
        deadline = Deadline(self._clock, self._clock.monotonic() + seconds)
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(min(deadline.remaining(), ATTEMPT_SECONDS))
            except ShimError as error:
                wait = max(error.wait, 2.0 ** (attempt - 1))
                in_time = wait + _LEAST_ATTEMPT_SECONDS < deadline.remaining()
                if attempt >= error.tries or not in_time:
                    error.message += f" (login {self._identity.login}, tries {attempt})"
                    raise
                self._clock.sleep(wait)

    def _attempt(self, seconds: float) -> Token:
        headers = {
            "Metadata": "true",
            "Accept": "application/json",
            "User-Agent": f"hostsync-credential/{VERSION}",
        }
        endpoint = self._identity.endpoint
        answer = self._transport.get(endpoint, target_of(self._identity), headers, seconds)
        return read_answer(answer, self._identity, self._clock.now())


def target_of(identity: Identity) -> str:
    """Return the request target: path and query, each value encoded once."""
    query = [("api-version", API_VERSION), ("resource", identity.server_id)]
    if identity.selector is not None:
        query.append(identity.selector)
    return f"{PATH}?" + "&".join(f"{name}={_quote(value)}" for name, value in query)


def read_answer(answer: Answer, identity: Identity, now: float) -> Token:
    """Return the token of a 200, raise what any other answer means. Pure.

    ======================  ===================================================
    400 identity not found  DeniedError, 3 tries: an identity just assigned
    other 400, 401, 403     DeniedError, or MalformedError for a portal's page
    404, 408, 5xx           UnreachableError, tried until the deadline
    410                     ThrottledError, no second try, remembered
    429                     ThrottledError, Retry-After honoured and remembered
    anything else           MalformedError: not an identity endpoint
    ======================  ===================================================
    """
    if answer.status == 200:
        return _read_token(answer, identity, now)
    raise _refusal(answer, identity, now)


def _refusal(answer: Answer, identity: Identity, now: float) -> ShimError:
    status, pause = answer.status, retry_after(answer, now)
    if status == 410:
        return ThrottledError(
            "the identity endpoint is being updated (410)", hold=pause or UPDATING_HOLD
        )
    if status == 429:
        hold = pause or THROTTLED_HOLD
        return ThrottledError(
            "the identity endpoint throttles (429)", tries=3, wait=pause or 0.0, hold=hold
        )
    if status in (404, 408) or status >= 500:
        return UnreachableError(
            f"identity endpoint {identity.endpoint} answered {status}",
            tries=_MANY,
            wait=pause or 0.0,
            hold=pause,
        )
    fault = _json_object(answer)
    if status not in (400, 401, 403) or fault is None:
        return MalformedError(
            f"{identity.endpoint} is not an identity endpoint: it answered {status}"
            f"{' with a page' if _is_page(answer) else ''} (a proxy or portal in between?)"
        )
    if status == 400 and "identity not found" in str(fault.get("error_description")).lower():
        return DeniedError(
            f"identity not found: {_whom(identity)} is not assigned to this machine", tries=3
        )
    return DeniedError(
        f"the identity endpoint denied a token for {_whom(identity)}, "
        f"server id {identity.server_id}: {status}{_fault_code(fault)}"
    )


def _read_token(answer: Answer, identity: Identity, now: float) -> Token:
    value = _json_object(answer)
    if value is None:
        raise MalformedError(
            f"{identity.endpoint} is not an identity endpoint: "
            f"its 200 is {'a page' if _is_page(answer) else 'not a JSON object'}"
        )
    token = require_token(value.get("access_token"))
    if str(value.get("token_type") or "Bearer").lower() != "bearer":
        raise MalformedError("the identity endpoint's token is not a bearer token")
    _verify_echo(value, identity)
    issuer_now = parse_http_date(answer.headers.get("date", ""))
    expires = expires_at(value, now, issuer_now)
    offset = clock_offset(now, issuer_now)
    warnings = (_clock_warning(offset),) if offset else ()
    return Token(token, expires=expires, warnings=warnings)


def _verify_echo(value: dict[str, object], identity: Identity) -> None:
    """A token of another identity than the selected one would act as somebody else."""
    if identity.selector is None:
        return
    kind, wanted = identity.selector
    echoed = value.get(kind)
    if echoed and str(echoed).lower() != wanted.lower():
        raise MalformedError(
            f"the identity endpoint answered for another identity than {_whom(identity)}"
        )


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


def _json_object(answer: Answer) -> dict[str, object] | None:
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_page(answer: Answer) -> bool:
    return answer.body.lstrip()[:1] == b"<" or "html" in answer.headers.get("content-type", "")


def _fault_code(fault: dict[str, object]) -> str:
    """The short code only: descriptions are prose and may quote what was sent."""
    code = fault.get("error")
    plain = isinstance(code, str) and len(code) <= 64 and code.replace("_", "").isalnum()
    return f" {code}" if plain else ""


def _whom(identity: Identity) -> str:
    if identity.selector is None:
        return "the system-assigned identity"
    return f"the identity with {identity.selector[0]} {identity.selector[1]}"


def _clock_warning(offset: float) -> str:
    direction = "behind" if offset > 0 else "ahead"
    return (
        f"the local clock is {abs(offset):.0f} s {direction} the identity endpoint's; the token's "
        "expiry is corrected, but the API server may still refuse it: set the clock"
    )


def _quote(text: str) -> str:
    return "".join(
        char if char in _UNRESERVED else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )
