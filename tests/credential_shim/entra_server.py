"""Microsoft Entra's token endpoint on loopback, over TLS: exact by default, misbehaving on request.

It knows one client of one tenant by its secrets, its certificates and the token of another issuer,
takes a form encoded exactly once, verifies assertions in full, and refuses with AADSTS codes.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

import trustme
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from tests.credential_shim.imds_server import Handler, ImdsServer, Seen
from tests.credential_shim.slot_root import SERVER_ID

TENANT = "7a1b4c52-1f6e-4d0c-9b7e-0d6f1f2a9c31"
CLIENT = "c0de0003-53b6-4c3f-8a6d-6f0c5f3b1a03"
SECRET = "s3cr3t+with/all%25of&the=things~ \u00fc"
TOKEN_PATH = f"/{TENANT}/oauth2/v2.0/token"
TRACE = "11111111-2222-3333-4444-555555555555"
HOST = "login.microsoftonline.com"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
FIELDS = {"grant_type", "client_id", "scope"}
IGNORED = {"client_info"}
"""What other clients send along."""


class EntraHandler(Handler):
    """One connection."""

    def do_POST(self) -> None:  # noqa: N802 - the base's name
        service = self.server.service
        body = self.rfile.read(int(self.headers["Content-Length"])).decode("ascii")
        headers = {name.lower(): value for name, value in self.headers.items()}
        scripted = service.record(Seen(path=self.path, query={}, headers=headers, form=body))
        if service.script.delay:
            time.sleep(service.script.delay)
        (scripted or answer_exactly)(self)
        self.close_connection = True

    def do_GET(self) -> None:  # noqa: N802 - the base's name
        """What other clients look up before they ask for a token."""
        authority = f"https://{self.headers['Host']}/{TENANT}"
        document = {
            "issuer": f"{authority}/v2.0",
            "authorization_endpoint": f"{authority}/oauth2/v2.0/authorize",
            "token_endpoint": f"{authority}/oauth2/v2.0/token",
        }
        self.reply(200, json.dumps(document).encode())
        self.close_connection = True


class EntraServer(ImdsServer):
    """Start it with ``with``; ``authority`` trusts it, for localhost and Entra's own name."""

    handler = EntraHandler

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.secrets = {SECRET}
        self.certificates: list[x509.Certificate] = []
        self.federated = "federated.jwt.token"
        self.authority = directory / "entra-ca.pem"
        trusted = trustme.CA()
        trusted.cert_pem.write_to_path(str(self.authority))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trusted.issue_cert("localhost", HOST).configure_cert(context)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"https://localhost:{self._server.server_port}"


def entra_of(handler: Handler) -> EntraServer:
    service = handler.server.service
    assert isinstance(service, EntraServer)
    return service


def answer_exactly(handler: Handler) -> None:
    """The contract's answer to the request."""
    entra = entra_of(handler)
    if handler.path != TOKEN_PATH:
        return refused(90002, "invalid_request")(handler)
    pairs = parse_qsl(entra.seen[-1].form, keep_blank_values=True, strict_parsing=True)
    form = dict(pairs)
    if len(form) != len(pairs) or not form.keys() >= FIELDS:
        return refused(900144, "invalid_request")(handler)
    if form["client_id"] != CLIENT:
        return refused(700016, "unauthorized_client")(handler)
    code = fault_of(entra, {name: form[name] for name in form.keys() - FIELDS - IGNORED})
    if code:
        return refused(code, "invalid_client", status=401)(handler)
    if form["scope"] != f"{SERVER_ID}/.default":
        return refused(500011, "invalid_resource")(handler)
    lifetime = int(entra.script.lifetime)
    body = {
        "token_type": "Bearer",
        "expires_in": lifetime,
        "ext_expires_in": lifetime,
        "access_token": entra.issued(len(entra.seen)),
    }
    return handler.reply(200, json.dumps(body).encode())


def fault_of(entra: EntraServer, proof: dict[str, str]) -> int:
    """The AADSTS code that this proof deserves, 0 for a good one."""
    if proof.keys() == {"client_secret"}:
        return 0 if proof["client_secret"] in entra.secrets else 7000215
    if proof.get("client_assertion_type") != ASSERTION_TYPE:
        return 7000218
    assertion = proof.get("client_assertion", "")
    if assertion == entra.federated or any(
        is_signed_by(assertion, each, f"{entra.url}{TOKEN_PATH}") for each in entra.certificates
    ):
        return 0
    return 700027


def is_signed_by(assertion: str, certificate: x509.Certificate, audience: str) -> bool:
    """Verify a client's assertion in full: algorithm, thumbprint, signature, claims, times."""
    head, claims, signature = (unpad(part) for part in assertion.split("."))
    header, said, now = json.loads(head), json.loads(claims), time.time()
    thumbprint = base64.urlsafe_b64encode(certificate.fingerprint(hashes.SHA256()))
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    try:
        key.verify(signature, assertion.rpartition(".")[0].encode(), pss, hashes.SHA256())
    except InvalidSignature:
        return False
    chain = header.get("x5c", [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()])
    return bool(
        (header["alg"], header["typ"]) == ("PS256", "JWT")
        and header["x5t#S256"] == thumbprint.rstrip(b"=").decode()
        and base64.b64decode(chain[0]) == certificate.public_bytes(Encoding.DER)
        and said["iss"] == said["sub"] == CLIENT
        and said["aud"] == audience
        and said["jti"]
        and said["nbf"] <= said["iat"] <= now + 1 < said["exp"] <= said["nbf"] + 600
    )


def unpad(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def refused(
    code: int, error: str = "invalid_client", *, status: int = 400, **headers: str
) -> Callable[[Handler], None]:
    """Entra's refusal; its prose quotes what was sent, as the real one's may."""

    def send(handler: Handler) -> None:
        sent = entra_of(handler).seen[-1].form
        prose = f"AADSTS{code}: Something about {sent}.\r\nTrace ID: {TRACE}\r\nTimestamp: now"
        body = {"error": error, "error_description": prose, "error_codes": [code]}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply(status, json.dumps(body).encode(), named)

    return send
