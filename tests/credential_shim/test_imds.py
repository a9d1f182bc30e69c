"""The IMDS source: what is asked, and what each answer makes it do."""

from __future__ import annotations

import json
from email.utils import formatdate

import pytest

from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
)
from credential_shim.exchange import Answer
from credential_shim.identity import Identity
from credential_shim.imds import UPDATING_HOLD, ImdsSource, read_answer, target_of
from credential_shim.tokens import Token
from tests.credential_shim.fakes import FakeClock, ScriptedTransport

SYSTEM = Identity(login="msi", server_id="6dae42f8")
SELECTED = Identity(login="msi", server_id="6dae42f8", selector=("client_id", "Abc-1"))


def ok(**changes: object) -> Answer:
    value: dict[str, object] = {
        "access_token": "t0ken",
        "client_id": "abc-1",
        "expires_in": "86400",
        "expires_on": "1700086400",
        "resource": "6dae42f8",
        "token_type": "Bearer",
    }
    value.update(changes)
    return Answer(200, {}, json.dumps(value).encode())


def bad(status: int, description: str = "", **headers: str) -> Answer:
    body = json.dumps({"error": "invalid_request", "error_description": description})
    return Answer(status, headers, body.encode())


NOT_FOUND = bad(400, "Identity not found")


def fetch(
    *answers: Answer | ShimError, identity: Identity = SYSTEM, seconds: float = 7.5
) -> tuple[Token | ShimError, FakeClock, ScriptedTransport]:
    clock = FakeClock()
    transport = ScriptedTransport(clock, list(answers))
    source = ImdsSource(identity, clock, transport)
    try:
        return source.fetch(seconds), clock, transport
    except ShimError as error:
        return error, clock, transport


def test_the_request_is_the_contracts() -> None:
    result, _, transport = fetch(ok())
    assert isinstance(result, Token)
    sent = transport.sent[0]
    assert sent.endpoint == "169.254.169.254:80"
    assert sent.target == (
        "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=6dae42f8"
    )
    assert sent.headers["Metadata"] == "true"
    assert sent.headers["User-Agent"].startswith("hostsync-credential/")


def test_a_selector_is_sent_encoded_once() -> None:
    selector = ("msi_res_id", "/subscriptions/a b/x+y%&=")
    target = target_of(Identity(login="msi", server_id="api://s", selector=selector))
    assert target.endswith(
        "&resource=api%3A%2F%2Fs&msi_res_id=%2Fsubscriptions%2Fa%20b%2Fx%2By%25%26%3D"
    )


def test_a_token_ends_when_expires_on_says() -> None:
    result, clock, _ = fetch(ok())
    assert isinstance(result, Token)
    assert result.value == "t0ken"
    assert result.expires == clock.wall + 86400
    assert result.warnings == ()


@pytest.mark.parametrize(("count", "waits"), [(1, [1.0]), (2, [1.0, 2.0])])
def test_identity_not_found_is_tried_three_times(count: int, waits: list[float]) -> None:
    result, clock, _ = fetch(*[NOT_FOUND] * count, ok())
    assert isinstance(result, Token)
    assert clock.slept == waits


def test_identity_not_found_three_times_names_the_selector() -> None:
    result, clock, transport = fetch(*[NOT_FOUND] * 3, identity=SELECTED)
    assert isinstance(result, DeniedError)
    assert result.exit_code == 5
    assert "client_id Abc-1" in result.message
    assert len(transport.sent) == 3
    assert clock.slept == [1.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_denial_is_not_retried(status: int) -> None:
    result, clock, _ = fetch(bad(status, "AADSTS500011 the body said s3cret things"))
    assert isinstance(result, DeniedError)
    assert "invalid_request" in result.message
    assert "s3cret" not in result.message
    assert clock.slept == []


@pytest.mark.parametrize("status", [204, 301, 302, 307, 405, 418])
def test_other_answers_are_not_from_an_identity_endpoint(status: int) -> None:
    result, clock, _ = fetch(Answer(status, {"location": "http://portal/?s3cret"}, b""))
    assert isinstance(result, MalformedError)
    assert "not an identity endpoint" in result.message
    assert "s3cret" not in result.message
    assert clock.slept == []


@pytest.mark.parametrize("status", [200, 400, 401, 403, 405])
def test_a_page_is_recognised_as_a_portal(status: int) -> None:
    page = Answer(status, {"content-type": "text/html"}, b"<html>s3cret</html>")
    result, _, _ = fetch(page)
    assert isinstance(result, MalformedError)
    assert "not an identity endpoint" in result.message
    assert "page" in result.message
    assert "s3cret" not in result.message


@pytest.mark.parametrize("status", [404, 408, 500, 502, 503, 504])
def test_passing_trouble_is_retried_until_the_deadline(status: int) -> None:
    result, clock, _ = fetch(bad(status), bad(status), ok())
    assert isinstance(result, Token)
    assert clock.slept == [1.0, 2.0]
    result, clock, _ = fetch(*[bad(status)] * 9)
    assert isinstance(result, UnreachableError)
    assert result.exit_code == 4
    assert clock.slept == [1.0, 2.0, 4.0]


def test_time_outs_are_retried_within_the_deadline() -> None:
    silence = UnreachableError("identity endpoint 169.254.169.254:80 timed out", tries=99)
    result, clock, transport = fetch(silence, silence, silence)
    assert isinstance(result, UnreachableError)
    assert "169.254.169.254" in result.message
    assert "login msi" in result.message
    assert clock.steady - 1000.0 <= 7.5
    assert [sent.seconds for sent in transport.sent] == [5.0, 1.5]


def test_a_refused_connection_fails_in_seconds() -> None:
    result, clock, _ = fetch(*[UnreachableError("refused", tries=3)] * 3)
    assert isinstance(result, UnreachableError)
    assert clock.slept == [1.0, 2.0]


def test_an_updating_endpoint_fails_fast_and_is_left_alone() -> None:
    result, clock, _ = fetch(bad(410))
    assert isinstance(result, ThrottledError)
    assert result.exit_code == 6
    assert result.hold == UPDATING_HOLD
    assert clock.slept == []
    result, _, _ = fetch(bad(410, **{"retry-after": "33"}))
    assert isinstance(result, ThrottledError)
    assert result.hold == 33


def test_throttling_waits_as_long_as_asked_when_there_is_time() -> None:
    result, clock, _ = fetch(bad(429, **{"retry-after": "3"}), ok())
    assert isinstance(result, Token)
    assert clock.slept == [3.0]


def test_throttling_beyond_the_deadline_fails_at_once_and_holds() -> None:
    result, clock, _ = fetch(bad(429, **{"retry-after": "30"}))
    assert isinstance(result, ThrottledError)
    assert result.hold == 30
    assert clock.slept == []


def test_retry_after_may_be_a_date_on_the_endpoints_clock() -> None:
    headers = {"date": formatdate(5000, usegmt=True), "retry-after": formatdate(5040, usegmt=True)}
    result, _, _ = fetch(bad(429, **headers))
    assert isinstance(result, ThrottledError)
    assert result.hold == 40


def test_a_token_of_another_identity_is_refused() -> None:
    result, _, _ = fetch(ok(client_id="somebody-else"), identity=SELECTED)
    assert isinstance(result, MalformedError)
    assert "another identity" in result.message


def test_an_echo_in_another_case_or_none_at_all_is_accepted() -> None:
    assert isinstance(fetch(ok(client_id="ABC-1"), identity=SELECTED)[0], Token)
    resource = Identity(login="msi", server_id="s", selector=("object_id", "o"))
    assert isinstance(fetch(ok(), identity=resource)[0], Token)
    assert isinstance(fetch(ok(object_id="p"), identity=resource)[0], MalformedError)


@pytest.mark.parametrize(
    "changes",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "two\nlines"},
        {"access_token": "two words"},
        {"access_token": "tökén"},
        {"access_token": "x" * 70000},
        {"token_type": "mac"},
        {"expires_on": "1600000000"},
        {"expires_on": "", "expires_in": None},
    ],
)
def test_an_unusable_200_is_malformed_and_its_token_unsaid(changes: dict[str, object]) -> None:
    result, clock, _ = fetch(ok(**changes))
    assert isinstance(result, MalformedError)
    assert result.exit_code == 7
    assert clock.slept == []
    assert "two" not in result.message


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 60000])
def test_a_200_that_is_no_object_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        read_answer(Answer(200, {}, body), SYSTEM, 0.0)


def test_a_wrong_clock_is_corrected_and_warned_about() -> None:
    clock = FakeClock()
    ahead = clock.wall + 7200
    answer = ok(expires_on=str(int(ahead) + 3600))
    answer = Answer(200, {"date": formatdate(ahead, usegmt=True)}, answer.body)
    result, clock, _ = fetch(answer)
    assert isinstance(result, Token)
    assert result.expires == pytest.approx(clock.wall + 3600, abs=1)
    assert "7200 s behind" in result.warnings[0]


def test_a_tokens_text_shows_in_no_representation() -> None:
    result, _, _ = fetch(ok())
    assert "t0ken" not in repr(result)
    assert "t0ken" not in str(result)
