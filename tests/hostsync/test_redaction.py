"""What others said is kept without their secrets and without what acts on a terminal."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.redaction import REDACTED, plain, redact

JWT = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJhdWQiOiJjYW5hcnkifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "said",
    [
        "token=canary",
        "Authorization: Bearer canary",
        "authorization: basic canary",
        'sent {"access_token": "canary", "expires_in": 5}',
        "client_secret='canary with spaces'",
        "AZURE_CLIENT_SECRET=canary",
        "password: canary",
        "passwd=canary;",
        "GET https://host.example/file?sig=canary&se=1",
        "GET https://user:canary@host.example/file",
        "GET https://host.example/file#canary",
        "started with --client-secret canary --verbose",
        "started with --token=canary",
        "SharedAccessKey=canary",
        "x-api-key=canary",
        "bearer canary",
    ],
)
def test_a_secret_is_hidden_wherever_one_is_told_as_such(said: str) -> None:
    assert "canary" not in redact(said)
    assert REDACTED in redact(said) or "user:" not in redact(said)


@pytest.mark.parametrize(
    "secret", [JWT, f"prefix {JWT}", "Ab3~" * 10, "abcDEF123" * 5, "dGhpcyBpcyBhIHNlY3JldA9" * 2]
)
def test_a_secret_is_hidden_by_its_looks(secret: str) -> None:
    assert redact(f"failed with {secret}") in (
        f"failed with {REDACTED}", f"failed with prefix {REDACTED}",
    )  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "hostsync 1.2.3 (protocol 1)",
        "cannot get a token: connection refused",
        "token expired, asking for another",
        "panic: runtime error: index out of range [3] with length 3",
        "release 0a1b2c3d4e5f verified",
        "sha256 " + "0123456789abcdef" * 4,
        "invocation 4b1c06b3a7a54d0b9a8e6f5d3c2b1a09",
        "id 6dae42f8-4368-4678-94ff-3960e28e3630",
        "GET https://host.example:8443/path/to/file 503",
        "hostsync-judge.service: Main process exited, code=exited, status=1/FAILURE",
        "error while loading shared libraries: libssl.so.1.1: cannot open shared object file",
        "2026-11-30T09:48:00.123456Z key frames dropped",
        "",
    ],
)
def test_what_helps_to_find_a_fault_stays(said: str) -> None:
    assert redact(said) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["a-", "eyJ", "a://", "secret", "token=", "--key ", "-a", "bearer ", "Aa1", '"', "\x1b"],
)
def test_hostile_text_costs_little_time(piece: str) -> None:
    """Four times the text costs about four times as much, and not sixteen, on any machine."""
    text = piece * (32768 // len(piece))
    assert processor_seconds(4 * text) < 8 * processor_seconds(text) + 1


def processor_seconds(text: str) -> float:
    started = time.process_time()
    plain(redact(text))
    return time.process_time() - started


@given(st.text())
def test_nothing_is_left_that_acts_on_a_terminal_or_cannot_be_printed(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(shown) & set("\u2028\u202e\u2066\u200b\ufeff")


def test_ordinary_text_is_shown_as_it_is() -> None:
    assert plain("größer\tals 5 €\r\nnext") == "größer\tals 5 €\nnext"
