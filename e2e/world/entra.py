"""Entra's token endpoint and published keys (CONTRACTS §6), as a function of a request."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from e2e.world.assertions import proves
from e2e.world.documents import Document
from e2e.world.identity import (
    AKS_SERVER,
    AUTHORITY_HOST,
    ISSUER,
    SERVICE_PRINCIPAL,
    TENANT,
    Issuance,
    claims_for,
)
from e2e.world.tokens import Signer
from e2e.world.web import Request, Response, answer

TOKEN_PATH = f"/{TENANT}/oauth2/v2.0/token"
KEYS_PATH = f"/{TENANT}/discovery/v2.0/keys"
CONFIGURATION_PATH = f"/{TENANT}/v2.0/.well-known/openid-configuration"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
FORM = "application/x-www-form-urlencoded"


class RefusedError(Exception):
    """A token request that Entra answers with an AADSTS code."""

    def __init__(self, status: int, error: str, code: int, prose: str) -> None:
        super().__init__(prose)
        self.status, self.error, self.code, self.prose = status, error, code, prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Entra:
    """Issues tokens to service principals and publishes what verifies every token of the lab."""

    signer: Signer
    issuance: Issuance
    registered: Callable[[], bytes] = bytes
    """The certificate (PEM) of the service principal; empty while none is registered."""

    def __call__(self, request: Request) -> Response:
        """Answer as login.microsoftonline.com does."""
        if request.method == "GET" and request.path == KEYS_PATH:
            return answer(200, self.signer.published())
        if request.method == "GET" and request.path == CONFIGURATION_PATH:
            return answer(200, _configuration())
        try:
            return self._token(request)
        except RefusedError as error:
            return _explain(error)

    def _token(self, request: Request) -> Response:
        if request.method != "POST" or not request.path.endswith("/oauth2/v2.0/token"):
            raise RefusedError(404, "not_found", 90023, "no such endpoint")
        if request.path != TOKEN_PATH:
            raise RefusedError(400, "invalid_request", 90002, "Tenant not found.")
        form = _form(request)
        self._check_client(form)
        resource, _, rest = form.get("scope", "").rpartition("/")
        if rest != ".default":
            raise RefusedError(400, "invalid_scope", 1002012, "The scope must end in /.default.")
        if resource != AKS_SERVER:
            raise RefusedError(400, "invalid_resource", 500011, "Unknown resource principal.")
        return self._issue(resource)

    def _check_client(self, form: dict[str, str]) -> None:
        if form.get("grant_type") != "client_credentials":
            raise RefusedError(400, "unsupported_grant_type", 70003, "Unsupported grant type.")
        if form.get("client_id") != SERVICE_PRINCIPAL.client_id:
            raise RefusedError(400, "unauthorized_client", 700016, "Application not found.")
        if form.get("client_assertion_type") == ASSERTION_TYPE:
            self._check_assertion(form.get("client_assertion", ""))
        elif "client_secret" not in form:
            raise RefusedError(401, "invalid_client", 7000218, "A secret is required.")
        elif form["client_secret"] != SERVICE_PRINCIPAL.secret:
            raise RefusedError(401, "invalid_client", 7000215, "Invalid client secret provided.")

    def _check_assertion(self, assertion: str) -> None:
        pem, audience = self.registered(), f"https://{AUTHORITY_HOST}{TOKEN_PATH}"
        now = self.issuance.now()
        if not pem or not proves(assertion, pem, SERVICE_PRINCIPAL.client_id, audience, now):
            raise RefusedError(401, "invalid_client", 700027, "The assertion's signature is bad.")

    def _issue(self, resource: str) -> Response:
        lifetime = self.issuance.lifetime()
        claims = claims_for(SERVICE_PRINCIPAL, resource, int(self.issuance.now()), lifetime)
        return answer(
            200,
            {
                "token_type": "Bearer",
                "expires_in": lifetime,
                "ext_expires_in": lifetime,
                "access_token": self.signer.sign(claims),
            },
            token=str(claims["uti"]),
        )


def _form(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0] != FORM:
        raise RefusedError(400, "invalid_request", 900144, "The body must be a form.")
    pairs = parse_qsl(request.body.decode("ascii", "replace"), keep_blank_values=True)
    form = dict(pairs)
    if len(form) != len(pairs):
        raise RefusedError(400, "invalid_request", 90100, "A parameter is repeated.")
    return form


def _configuration() -> Document:
    authority = f"https://{AUTHORITY_HOST}"
    return {
        "issuer": ISSUER,
        "token_endpoint": authority + TOKEN_PATH,
        "jwks_uri": authority + KEYS_PATH,
    }


def _explain(error: RefusedError) -> Response:
    prose = f"AADSTS{error.code}: {error.prose}\r\nTrace ID: lab\r\nCorrelation ID: lab"
    return answer(
        error.status,
        {"error": error.error, "error_description": prose, "error_codes": [error.code]},
        refused=str(error.code),
    )
