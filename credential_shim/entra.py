"""Microsoft Entra: one POST for a client's token, and what its refusals mean.

Contract: POST https://<authority>/<tenant>/oauth2/v2.0/token, a form encoded exactly once, with
``grant_type=client_credentials``, ``client_id``, ``scope=<server id>/.default`` and a secret or an
assertion. Errors are JSON with ``error``, ``error_codes`` and a description of which only the code
and the trace id are shown: its prose may quote the request.
"""

import re

from credential_shim.answers import (
    fault_code,
    is_page,
    json_object,
    retry_after,
    token_of,
)
from credential_shim.attempts import MANY, until_token
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
    UsageError,
)
from credential_shim.exchange import Answer, quote
from credential_shim.identity import Identity, Tenant
from credential_shim.proofs import CERTIFICATE, SECRET
from credential_shim.tokens import Token

DENIED_HOLD = 15.0
"""A refusal is not asked for again in this time; a rotated secret is another key, and is."""
THROTTLED_HOLD = 5.0
LOOP_HOLD = 180.0
"""Entra's own protection against loops (50196) and floods (90055) lasts minutes."""

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TRANSIENT = 90033
_FLOODED = (50196, 90055)
_REFUSALS = {
    7000215: ("the client secret is wrong", "put the secret's value, not its id, into {place}"),
    7000222: (
        "the client secret has expired",
        "make a new one and put it into {place}; no restart is needed",
    ),
    700016: ("no such client in this tenant", "check client-id, tenant-id and the cloud"),
    7000112: ("the application is disabled", "enable it in Entra"),
    7000229: ("the application has no service principal here", "create it in this tenant"),
    90002: ("no such tenant", "check tenant-id and the cloud"),
    500011: ("no such API server in this tenant", "check server-id and tenant-id"),
    700027: (
        "the certificate is not registered with the client, or expired",
        "register the certificate in {place}",
    ),
    700024: ("the assertion is not valid now", "set the clock, or renew {place}"),
    7000218: ("neither secret nor assertion was accepted", "check the client's credentials"),
    700213: ("no federated credential matches", "check issuer, subject and audience of {place}"),
    70021: ("no federated credential matches", "check issuer, subject and audience of {place}"),
    530032: ("blocked by the tenant's security policy", "ask the tenant's administrator"),
    53003: ("blocked by conditional access", "ask the tenant's administrator"),
    900382: ("the client belongs to another cloud", "check --environment"),
    900432: ("the client belongs to another cloud", "check --environment"),
}
"""AADSTS codes that no second try changes: what is wrong, and the remedy."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from credential_shim.ports import Clock, Poster


class EntraSource:
    """Tokens for a client of Entra that proves itself by secret, certificate or assertion."""

    def __init__(
        self, identity: Identity, tenant: Tenant, clock: "Clock", poster: "Poster"
    ) -> None:
        self._identity = identity
        self._tenant = tenant
        self._clock = clock
        self._poster = poster

    def fetch(self, seconds: float) -> Token:
        """See ``ports.Source.fetch``. Also raises UsageError when the proof cannot be read."""
        return until_token(self._attempt, self._clock, seconds, self._identity.login)

    def _attempt(self, seconds: float) -> Token:
        tenant = self._tenant
        path = f"/{quote(tenant.tenant_id)}/oauth2/v2.0/token"
        now = self._clock.now()
        proof = proof_fields(tenant, f"{tenant.authority}{path}", now)
        form = form_of(self._identity.server_id, tenant.client_id, proof)
        answer = self._poster.post(tenant.authority, path, form, seconds)
        return read_answer(answer, self._identity, tenant, self._clock.now())


def proof_fields(tenant: Tenant, audience: str, now: float) -> dict[str, str]:
    """Return the form's fields that prove the client; the proof is read anew. Raises UsageError."""
    proof = tenant.proof
    if proof.kind == SECRET:
        return {"client_secret": proof.text()}
    if proof.kind == CERTIFICATE:
        try:
            from credential_shim.assertion import make_assertion
        except ImportError as error:
            raise UsageError(
                "certificates need the package cryptography, which is not here"
            ) from error
        assertion = make_assertion(proof, tenant.client_id, audience, now)
    else:
        assertion = proof.text()
    return {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}


def form_of(server_id: str, client_id: str, proof: dict[str, str]) -> bytes:
    """Return the body of the request, each value encoded exactly once."""
    fields = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "scope": f"{server_id}/.default",
        **proof,
    }
    return "&".join(f"{name}={quote(value)}" for name, value in fields.items()).encode("ascii")


def read_answer(answer: Answer, identity: Identity, tenant: Tenant, now: float) -> Token:
    """Return the token of a 200, raise what any other answer means. Pure.

    ==============================  ============================================
    a code among ``_REFUSALS``      DeniedError with its remedy, one try
    90033, temporarily_unavailable  UnreachableError, tried until the deadline
    408, 5xx                        the same
    50196, 90055                    ThrottledError, no second try, for minutes
    429                             ThrottledError, Retry-After honoured
    other 400, 401, 403 in JSON     DeniedError with the code
    anything else                   MalformedError: not Entra
    ==============================  ============================================
    """
    value = json_object(answer)
    if answer.status == 200 and value is not None:
        return token_of(value, answer, now)
    raise _refusal(answer, value or {}, identity, tenant, now)


def _refusal(
    answer: Answer, fault: dict[str, object], identity: Identity, tenant: Tenant, now: float
) -> ShimError:
    pause = retry_after(answer, now)
    error, codes = fault_code(fault), codes_of(fault)
    shown = "".join([f" AADSTS{codes[0]}" if codes else f" {error}".rstrip(), _trace(fault)])
    if any(code in _FLOODED for code in codes):
        hold = max(pause or 0.0, LOOP_HOLD)
        return ThrottledError(f"Entra blocks a flood of requests:{shown}", hold=hold)
    if answer.status == 429:
        hold = pause or THROTTLED_HOLD
        return ThrottledError(
            f"Entra throttles (429){shown}", tries=3, wait=pause or 0.0, hold=hold
        )
    transient = _TRANSIENT in codes or error == "temporarily_unavailable"
    if transient or answer.status == 408 or answer.status >= 500:
        return UnreachableError(
            f"{tenant.authority} answered {answer.status}{shown}",
            tries=MANY,
            wait=pause or 0.0,
            hold=pause,
        )
    if answer.status not in (400, 401, 403) or not (error or codes):
        return MalformedError(
            f"{tenant.authority} is not Entra: it answered {answer.status}"
            f"{' with a page' if is_page(answer) else ''} (a proxy or portal in between?)"
        )
    return DeniedError(_explain(codes, identity, tenant) + shown, hold=DENIED_HOLD)


def _explain(codes: tuple[int, ...], identity: Identity, tenant: Tenant) -> str:
    known = next((_REFUSALS[code] for code in codes if code in _REFUSALS), None)
    who = f"client {tenant.client_id} of tenant {tenant.tenant_id}"
    if known is None:
        return f"Entra denied {who} a token for {identity.server_id}:"
    cause, remedy = known
    return f"{cause} ({who}): {remedy.format(place=tenant.proof.place)}:"


def codes_of(fault: dict[str, object]) -> tuple[int, ...]:
    """Return the AADSTS codes of an error, from the list or, where that is missing, the prose."""
    codes = fault.get("error_codes")
    numbers = tuple(code for code in codes if type(code) is int) if isinstance(codes, list) else ()
    if numbers:
        return numbers
    match = re.match(r"AADSTS(\d{1,9})\b", str(fault.get("error_description", "")), re.ASCII)
    return (int(match[1]),) if match else ()


def _trace(fault: dict[str, object]) -> str:
    """The trace id, which is what Microsoft's support asks for."""
    prose = str(fault.get("error_description", ""))
    match = re.search(r"Trace ID: ([0-9A-Za-z-]{1,40})", prose, re.ASCII)
    trace = fault.get("trace_id") or (match[1] if match else "")
    plain = isinstance(trace, str) and len(trace) <= 40 and trace.replace("-", "").isalnum()
    return f" (trace id {trace})" if plain else ""
