"""What Entra's answers mean, and what is sent to it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from credential_shim.entra import (
    DENIED_HOLD,
    LOOP_HOLD,
    EntraSource,
    codes_of,
    form_of,
    read_answer,
)
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
    UsageError,
)
from credential_shim.exchange import Answer
from credential_shim.identity import Identity, Tenant
from credential_shim.proofs import FEDERATED, SECRET, FilePlace, Proof
from credential_shim.tokens import Token
from tests.credential_shim.fakes import FakeClock, ScriptedPoster

NOW = 1_700_000_000.0
TRACE = "11111111-2222-3333-4444-555555555555"
TOKEN = {"access_token": "t.o.k", "expires_in": 3599, "token_type": "Bearer"}


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    return Tenant(
        authority="https://login.microsoftonline.com",
        tenant_id="tenant",
        client_id="client",
        proof=Proof(SECRET, FilePlace(str(secret))),
    )


def identity_of(tenant: Tenant) -> Identity:
    return Identity(login="spn", server_id="server", tenant=tenant)


def good() -> Answer:
    return Answer(200, {}, json.dumps(TOKEN).encode())


def aadsts(code: int, error: str = "invalid_client", status: int = 400, **headers: str) -> Answer:
    prose = f"AADSTS{code}: prose with hunter2.\r\nTrace ID: {TRACE}\r\nCorrelation ID: x"
    value = {"error": error, "error_description": prose, "error_codes": [code]}
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, named, json.dumps(value).encode())


def refusal(tenant: Tenant, answer: Answer) -> ShimError:
    with pytest.raises(ShimError) as caught:
        read_answer(answer, identity_of(tenant), tenant, NOW)
    assert "hunter2" not in caught.value.message
    assert "prose" not in caught.value.message
    return caught.value


def fetched(tenant: Tenant, *answers: Answer | ShimError) -> tuple[Token, ScriptedPoster]:
    clock = FakeClock()
    poster = ScriptedPoster(clock, list(answers))
    return EntraSource(identity_of(tenant), tenant, clock, poster).fetch(7.5), poster


def test_one_post_where_one_suffices(tenant: Tenant) -> None:
    token, poster = fetched(tenant, good())
    assert (token.value, token.expires) == ("t.o.k", NOW + 3599)
    origin, path, form = poster.sent[0]
    assert (origin, path) == ("https://login.microsoftonline.com", "/tenant/oauth2/v2.0/token")
    assert dict(parse_qsl(form.decode())) == {
        "grant_type": "client_credentials",
        "client_id": "client",
        "scope": "server/.default",
        "client_secret": "hunter2",
    }
    assert len(poster.sent) == 1


@pytest.mark.parametrize("secret", ["a+b/c%d=e&f", "%2B", "per cent % 25", "\u00fcml\u00e4ut~-._"])
def test_a_secret_is_encoded_exactly_once(secret: str) -> None:
    form = form_of("s", "c", {"client_secret": secret}).decode("ascii")
    assert dict(parse_qsl(form, strict_parsing=True))["client_secret"] == secret


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (7000215, "the client secret is wrong"),
        (7000222, "expired"),
        (700016, "no such client"),
        (90002, "no such tenant"),
        (500011, "no such API server"),
        (700027, "not registered"),
        (7000218, "credentials"),
        (530032, "security policy"),
        (900382, "another cloud"),
        (900432, "another cloud"),
        (700024, "not valid now"),
        (999999, "denied"),
    ],
)
def test_a_refusal_names_cause_code_and_trace_and_is_not_repeated(
    tenant: Tenant, code: int, cause: str
) -> None:
    error = refusal(tenant, aadsts(code))
    assert isinstance(error, DeniedError)
    assert cause in error.message
    assert f"AADSTS{code} (trace id {TRACE})" in error.message
    assert (error.tries, error.hold) == (1, DENIED_HOLD)


def test_the_remedy_names_the_place_of_the_secret(tenant: Tenant) -> None:
    assert f"file {tenant.proof.place}".split()[-1] in refusal(tenant, aadsts(7000222)).message


@pytest.mark.parametrize(
    ("answer", "kind", "tries", "wait"),
    [
        (Answer(429, {"retry-after": "17"}, b"slow down"), ThrottledError, 3, 17.0),
        (Answer(429, {}, b""), ThrottledError, 3, 0.0),
        (Answer(503, {}, b"<html>"), UnreachableError, 99, 0.0),
        (Answer(500, {"retry-after": "2"}, b""), UnreachableError, 99, 2.0),
        (Answer(408, {}, b""), UnreachableError, 99, 0.0),
        (aadsts(90033, "temporarily_unavailable"), UnreachableError, 99, 0.0),
        (aadsts(1, "temporarily_unavailable"), UnreachableError, 99, 0.0),
        (aadsts(90033, "server_error"), UnreachableError, 99, 0.0),
    ],
)
def test_passing_trouble_is_tried_again_as_asked(
    tenant: Tenant, answer: Answer, kind: type[ShimError], tries: int, wait: float
) -> None:
    error = refusal(tenant, answer)
    assert type(error) is kind
    assert (error.tries, error.wait) == (tries, wait)


@pytest.mark.parametrize("code", [50196, 90055])
def test_a_flood_is_held_back_for_minutes(tenant: Tenant, code: int) -> None:
    error = refusal(tenant, aadsts(code, "invalid_grant"))
    assert isinstance(error, ThrottledError)
    assert (error.tries, error.hold) == (1, LOOP_HOLD)
    assert refusal(tenant, aadsts(code, Retry_After="9")).hold == LOOP_HOLD
    later = aadsts(code)
    later.headers["retry-after"] = "400"
    assert refusal(tenant, later).hold == 400


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {}, b"<html>Sign in</html>"),
        Answer(200, {}, b'{"expires_in":1}'),
        Answer(200, {}, b'{"access_token":"a b","expires_in":9}'),
        Answer(200, {}, b'{"access_token":"a"}'),
        Answer(302, {"location": "https://evil"}, b""),
        Answer(403, {"content-type": "text/html"}, b"<html>blocked</html>"),
        Answer(400, {}, b"[]"),
        Answer(404, {}, b"{}"),
    ],
)
def test_what_is_not_entra_is_said_to_be_none(tenant: Tenant, answer: Answer) -> None:
    assert isinstance(refusal(tenant, answer), MalformedError)


def test_codes_come_from_the_prose_where_there_is_no_list() -> None:
    assert codes_of({"error_description": "AADSTS7000215: Invalid"}) == (7000215,)
    assert codes_of({"error_description": "no AADSTS7000215", "error_codes": ["1", True]}) == ()


def test_an_outage_that_passes_costs_a_pause(tenant: Tenant) -> None:
    token, poster = fetched(tenant, Answer(503, {}, b""), UnreachableError("x", tries=3), good())
    assert token.value == "t.o.k"
    assert poster.clock.slept == [1.0, 2.0]


def test_a_secret_rotated_between_two_tries_is_used_by_the_second(
    tenant: Tenant, tmp_path: Path
) -> None:
    def rotate() -> None:
        (tmp_path / "secret").write_text("n3w")

    clock = FakeClock(on_sleep=rotate)
    poster = ScriptedPoster(clock, [Answer(503, {}, b""), good()])
    EntraSource(identity_of(tenant), tenant, clock, poster).fetch(7.5)
    assert b"client_secret=n3w" in poster.sent[1][2]


def test_a_federated_token_is_read_at_each_exchange(tmp_path: Path) -> None:
    file = tmp_path / "token"
    proof = Proof(FEDERATED, FilePlace(str(file), private=False))
    tenant = Tenant(authority="https://a", tenant_id="t", client_id="c", proof=proof)
    for content in ("first", "second"):
        file.write_text(f"{content}\n")
        _, poster = fetched(tenant, good())
        form = dict(parse_qsl(poster.sent[0][2].decode()))
        assert form["client_assertion"] == content
        assert form["client_assertion_type"].endswith(":jwt-bearer")
    file.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        fetched(tenant, good())


def test_a_wrong_local_clock_is_said(tenant: Tenant) -> None:
    answer = Answer(200, {"date": "Tue, 14 Nov 2023 21:13:20 GMT"}, good().body)
    token = read_answer(answer, identity_of(tenant), tenant, NOW)
    assert token.expires == NOW + 3599
    assert "set the clock" in token.warnings[0]
