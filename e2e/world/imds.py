"""The instance metadata service's token endpoint (CONTRACTS §4), as a function of a request."""

from dataclasses import dataclass

from e2e.world.identity import SYSTEM_ASSIGNED, USER_ASSIGNED, Issuance, Principal, claims_for
from e2e.world.tokens import Signer
from e2e.world.web import Request, Response, answer

TOKEN_PATH = "/metadata/identity/oauth2/token"
EARLIEST_API = "2018-02-01"
SELECTORS = ("client_id", "object_id", "msi_res_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imds:
    """Issues tokens to the host's managed identities."""

    signer: Signer
    issuance: Issuance

    def __call__(self, request: Request) -> Response:
        """Answer as 169.254.169.254 does."""
        if request.path != TOKEN_PATH:
            return _refuse(404, "not_found", "No such endpoint")
        if request.method != "GET":
            return _refuse(405, "method_not_allowed", "Only GET")
        flaw = _flaw(request)
        if flaw:
            return _refuse(400, "invalid_request", flaw)
        who = _selected(request)
        if who is None:
            return _refuse(400, "invalid_request", "Identity not found")
        return self._issue(who, request.query["resource"])

    def _issue(self, who: Principal, resource: str) -> Response:
        issued, lifetime = int(self.issuance.now()), self.issuance.lifetime()
        claims = claims_for(who, resource, issued, lifetime)
        return answer(
            200,
            {
                "access_token": self.signer.sign(claims),
                "client_id": who.client_id,
                "expires_in": str(lifetime),
                "expires_on": str(issued + lifetime),
                "ext_expires_in": str(lifetime),
                "not_before": str(issued),
                "resource": resource,
                "token_type": "Bearer",
            },
            token=str(claims["uti"]),
        )


def _flaw(request: Request) -> str:
    """Return what is wrong with a token request, or nothing."""
    if request.headers.get("metadata", "").lower() != "true":
        return "Required metadata header not specified"
    if "x-forwarded-for" in request.headers:
        return "Requests that came through a proxy are refused"
    if request.query.get("api-version", "") < EARLIEST_API:
        return "Required query variable 'api-version' is missing or too old"
    resource = request.query.get("resource", "")
    if not resource or resource.endswith("/.default"):
        return "Required query variable 'resource' is missing or is a scope"
    if sum(name in request.query for name in SELECTORS) > 1:
        return "Only one of client_id, object_id and msi_res_id may be specified"
    return ""


def _selected(request: Request) -> Principal | None:
    query = request.query
    if not any(name in query for name in SELECTORS):
        return SYSTEM_ASSIGNED
    for who in (SYSTEM_ASSIGNED, USER_ASSIGNED):
        if (
            query.get("client_id") == who.client_id
            or query.get("object_id") == who.object_id
            or query.get("msi_res_id", "").lower() == who.resource_id.lower()
        ):
            return who
    return None


def _refuse(status: int, code: str, description: str) -> Response:
    return answer(status, {"error": code, "error_description": description}, refused=description)
