"""IMDS and Entra answer as the real ones do, well and badly."""

import base64
import datetime as dt
import json
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from e2e.world.documents import Document, decode, text
from e2e.world.entra import CONFIGURATION_PATH, FORM, KEYS_PATH, TOKEN_PATH, Entra
from e2e.world.identity import (
    AKS_SERVER,
    AUTHORITY_HOST,
    ISSUER,
    SERVICE_PRINCIPAL,
    SYSTEM_ASSIGNED,
    TENANT,
    USER_ASSIGNED,
    Issuance,
)
from e2e.world.imds import TOKEN_PATH as IMDS_PATH
from e2e.world.imds import Imds
from e2e.world.pki import make_signing_key
from e2e.world.tokens import Expectation, read_key_set, verify
from e2e.world.web import Request, Response
from tests.e2e_world.keys import SIGNER

NOW = 1_800_000_000
ISSUANCE = Issuance(now=lambda: NOW + 0.5, lifetime=lambda: 86_400)
IMDS = Imds(signer=SIGNER, issuance=ISSUANCE)
ENTRA = Entra(signer=SIGNER, issuance=ISSUANCE)
EXPECTED = Expectation(issuer=ISSUER, audiences=(AKS_SERVER,))


def ask_imds(headers: dict[str, str] | None = None, **query: str) -> Response:
    sent = {"api-version": "2018-02-01", "resource": AKS_SERVER, **query}
    kept = {name: value for name, value in sent.items() if value}
    chosen = {"metadata": "true"} if headers is None else headers
    return IMDS(Request(method="GET", path=IMDS_PATH, query=kept, headers=chosen))


def believed(response: Response) -> Document:
    token = text(decode(response.body), "access_token")
    return verify(token, read_key_set(SIGNER.published()), EXPECTED, NOW)


def test_imds_issues_a_true_token_and_writes_its_numbers_as_strings() -> None:
    answered = ask_imds()
    body = decode(answered.body)
    assert answered.status == 200
    assert body["expires_in"] == "86400"
    assert body["expires_on"] == str(NOW + 86_400)
    assert body["resource"] == AKS_SERVER
    claims = believed(answered)
    assert claims["oid"] == SYSTEM_ASSIGNED.object_id
    assert claims["exp"] == NOW + 86_400


@pytest.mark.parametrize(
    "selector",
    [
        {"client_id": USER_ASSIGNED.client_id},
        {"object_id": USER_ASSIGNED.object_id},
        {"msi_res_id": USER_ASSIGNED.resource_id.upper()},
    ],
)
def test_imds_finds_a_user_assigned_identity_by_each_of_its_names(
    selector: dict[str, str],
) -> None:
    answered = ask_imds(None, **selector)
    assert decode(answered.body)["client_id"] == USER_ASSIGNED.client_id
    assert believed(answered)["oid"] == USER_ASSIGNED.object_id


@pytest.mark.parametrize(
    ("headers", "query", "said"),
    [
        ({}, {}, "metadata header"),
        ({"metadata": "true", "x-forwarded-for": "10.0.0.1"}, {}, "proxy"),
        (None, {"api-version": ""}, "api-version"),
        (None, {"resource": ""}, "resource"),
        (None, {"resource": f"{AKS_SERVER}/.default"}, "resource"),
        (None, {"client_id": "nobody"}, "Identity not found"),
        (None, {"client_id": "a", "object_id": "b"}, "Only one"),
    ],
)
def test_imds_refuses_a_flawed_request_and_says_why(
    headers: dict[str, str] | None, query: dict[str, str], said: str
) -> None:
    answered = ask_imds(headers, **query)
    assert answered.status == 400
    assert said in text(decode(answered.body), "error_description")


def test_imds_answers_other_methods_and_paths_as_unknown() -> None:
    assert IMDS(Request(method="POST", path=IMDS_PATH)).status == 405
    assert IMDS(Request(method="GET", path="/metadata/other")).status == 404


def ask_entra(path: str = TOKEN_PATH, kind: str = FORM, **changes: str) -> Response:
    form = {
        "grant_type": "client_credentials",
        "client_id": SERVICE_PRINCIPAL.client_id,
        "client_secret": SERVICE_PRINCIPAL.secret,
        "scope": f"{AKS_SERVER}/.default",
        **changes,
    }
    body = urlencode({name: value for name, value in form.items() if value}).encode()
    return ENTRA(Request(method="POST", path=path, headers={"content-type": kind}, body=body))


def test_entra_issues_a_true_token_for_the_right_secret() -> None:
    answered = ask_entra()
    assert answered.status == 200
    assert decode(answered.body)["expires_in"] == 86_400
    assert believed(answered)["appid"] == SERVICE_PRINCIPAL.client_id


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"client_secret": "wrong"}, 401, 7000215),
        ({"client_secret": ""}, 401, 7000218),
        ({"client_id": "nobody"}, 400, 700016),
        ({"grant_type": "password"}, 400, 70003),
        ({"scope": AKS_SERVER}, 400, 1002012),
        ({"scope": "https://other/.default"}, 400, 500011),
        ({"path": "/other/oauth2/v2.0/token"}, 400, 90002),
        ({"kind": "application/json"}, 400, 900144),
    ],
)
def test_entra_refuses_with_the_code_that_names_the_cause(
    changes: dict[str, str], status: int, code: int
) -> None:
    answered = ask_entra(**changes)
    body = decode(answered.body)
    assert (answered.status, body["error_codes"]) == (status, [code])
    assert text(body, "error_description").startswith(f"AADSTS{code}: ")


def test_entra_takes_a_secret_encoded_twice_for_a_wrong_one() -> None:
    twice = urlencode({"": SERVICE_PRINCIPAL.secret})[1:]
    assert ask_entra(client_secret=twice).status == 401


def test_no_answer_or_log_line_holds_the_secret() -> None:
    for answered in (ask_entra(), ask_entra(client_secret="wrong" + SERVICE_PRINCIPAL.secret)):
        assert SERVICE_PRINCIPAL.secret not in answered.body.decode()
        assert SERVICE_PRINCIPAL.secret not in str(answered.facts)


def test_entra_s_configuration_leads_to_the_keys_that_verify_its_tokens() -> None:
    configuration = decode(ENTRA(Request(method="GET", path=CONFIGURATION_PATH)).body)
    assert text(configuration, "jwks_uri").endswith(KEYS_PATH)
    assert TENANT in text(configuration, "issuer")
    keys = read_key_set(decode(ENTRA(Request(method="GET", path=KEYS_PATH)).body))
    token = text(decode(ask_entra().body), "access_token")
    assert verify(token, keys, EXPECTED, NOW)


def test_entra_takes_an_assertion_of_the_registered_certificate_only() -> None:
    key, other = make_signing_key(), make_signing_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    entra = Entra(signer=SIGNER, issuance=ISSUANCE, registered=lambda: pem)
    form = {
        "grant_type": "client_credentials",
        "client_id": SERVICE_PRINCIPAL.client_id,
        "scope": f"{AKS_SERVER}/.default",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    }

    def status_of(assertion: str, issuer: Entra = entra) -> int:
        body = urlencode({**form, "client_assertion": assertion}).encode()
        headers = {"content-type": FORM}
        return issuer(Request(method="POST", path=TOKEN_PATH, headers=headers, body=body)).status

    good = signed(key, certificate, {})
    assert status_of(good) == 200
    assert status_of(good, ENTRA) == 401
    assert status_of(signed(other, certificate, {})) == 401
    assert status_of(signed(key, certificate, {"aud": "https://elsewhere"})) == 401
    assert status_of(signed(key, certificate, {"exp": NOW - 1})) == 401
    assert status_of("not.an.assertion") == 401


def signed(key: rsa.RSAPrivateKey, certificate: x509.Certificate, other: Document) -> str:
    """A client's assertion, but for the claims in `other`."""

    def encoded(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    who = SERVICE_PRINCIPAL.client_id
    claims = {"iss": who, "sub": who, "jti": "1", "nbf": NOW, "exp": NOW + 300}
    claims = {**claims, "aud": f"https://{AUTHORITY_HOST}{TOKEN_PATH}", **other}
    header = {"alg": "PS256", "x5t#S256": encoded(certificate.fingerprint(hashes.SHA256()))}
    text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    return f"{text}.{encoded(key.sign(text.encode(), pss, hashes.SHA256()))}"
