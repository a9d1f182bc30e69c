"""Azure managed identity from the instance metadata service (IMDS).

Contract: GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=ID with at most one
of client_id, object_id, msi_res_id, header ``Metadata: true``; ``resource`` is the bare id.
The service allows 20 requests a second and 5 at once per VM, and needs up to 70 s for its own
update (410). What each answer deserves is the table in ``read_answer``.
"""

from credential_shim._version import VERSION
from credential_shim.answers import fault_code, is_page, json_object, retry_after, token_of
from credential_shim.attempts import MANY, until_token
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
)
from credential_shim.exchange import Answer, quote
from credential_shim.identity import Identity
from credential_shim.tokens import Token

PATH = "/metadata/identity/oauth2/token"
API_VERSION = "2018-02-01"

UPDATING_HOLD = 10.0
"""One request in this time finds out when an updating service is back."""
THROTTLED_HOLD = 2.0

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
        return until_token(self._attempt, self._clock, seconds, self._identity.login)

    def _attempt(self, seconds: float) -> Token:
        headers = {
            "Metadata": "true",
            "Accept": "application/json",
            "User-Agent": f"hostsync-credential/{VERSION}",
        }
        endpoint = self._identity.endpoint
        answer = self._transport.get(endpoint, target_of(self._identity), headers, seconds)
        return read_answer(answer, self._identity, self._clock.now())


def target_of(identity: Identity, api_version: str = API_VERSION) -> str:
    """Return the request target: path and query, each value encoded once."""
    query = [("api-version", api_version), ("resource", identity.server_id)]
    if identity.selector is not None:
        query.append(identity.selector)
    return f"{PATH}?" + "&".join(f"{name}={quote(value)}" for name, value in query)


def read_answer(
    answer: Answer, identity: Identity, now: float, *, echo_required: bool = False
) -> Token:
    """Return the token of a 200, raise what any other answer means. Pure.

    ``echo_required``: the endpoint has to confirm a selected identity, not merely not deny it.

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
        return _read_token(answer, identity, now, echo_required=echo_required)
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
            tries=MANY,
            wait=pause or 0.0,
            hold=pause,
        )
    fault = json_object(answer)
    if status not in (400, 401, 403) or fault is None:
        return MalformedError(
            f"{identity.endpoint} is not an identity endpoint: it answered {status}"
            f"{' with a page' if is_page(answer) else ''} (a proxy or portal in between?)"
        )
    if status == 400 and "identity not found" in str(fault.get("error_description")).lower():
        return DeniedError(
            f"identity not found: {_whom(identity)} is not assigned to this machine", tries=3
        )
    return DeniedError(
        f"the identity endpoint denied a token for {_whom(identity)}, "
        f"server id {identity.server_id}: {status}{_code(fault)}"
    )


def _read_token(answer: Answer, identity: Identity, now: float, *, echo_required: bool) -> Token:
    value = json_object(answer)
    if value is None:
        raise MalformedError(
            f"{identity.endpoint} is not an identity endpoint: "
            f"its 200 is {'a page' if is_page(answer) else 'not a JSON object'}"
        )
    _verify_echo(value, identity, required=echo_required)
    return token_of(value, answer, now)


def _verify_echo(value: dict[str, object], identity: Identity, *, required: bool) -> None:
    """A token of another identity than the selected one would act as somebody else."""
    if identity.selector is None:
        return
    kind, wanted = identity.selector
    echoed = value.get(kind)
    if (echoed or required) and str(echoed).lower() != wanted.lower():
        raise MalformedError(
            f"the identity endpoint answered for another identity than {_whom(identity)}"
        )


def _code(fault: dict[str, object]) -> str:
    code = fault_code(fault)
    return f" {code}" if code else ""


def _whom(identity: Identity) -> str:
    if identity.selector is None:
        return "the system-assigned identity"
    return f"the identity with {identity.selector[0]} {identity.selector[1]}"
