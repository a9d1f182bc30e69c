"""The ExecCredential object: version asked for, expiry named."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credential_shim import credential
from credential_shim.errors import MalformedError, UsageError
from credential_shim.fastpath import api_version_at_once
from credential_shim.tokens import Token

NOW = 1_700_000_000.5
GROUP = "client.authentication.k8s.io"


def exec_info(version: str, **spec: object) -> str:
    """As client-go marshals it."""
    value = {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {**spec, "interactive": False},
    }
    return json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_version_asked_for_is_understood_at_once_and_in_full(version: str) -> None:
    text = exec_info(f"{GROUP}/{version}")
    assert api_version_at_once(text) == version
    assert credential.requested_version(text) == version


def test_a_person_running_the_shim_gets_v1() -> None:
    assert api_version_at_once("") == "v1"
    assert credential.requested_version("") == "v1"


def test_cluster_information_cannot_change_the_version() -> None:
    cluster = {"server": "https://x", "config": {"apiVersion": f"{GROUP}/v1beta1"}}
    text = exec_info(f"{GROUP}/v1", cluster=cluster)
    assert api_version_at_once(text) == "v1"
    assert credential.requested_version(text) == "v1"


def test_unusual_but_valid_json_is_left_to_the_full_parser() -> None:
    text = json.dumps(json.loads(exec_info(f"{GROUP}/v1beta1")), indent=2)
    assert api_version_at_once(text) is None
    assert credential.requested_version(text) == "v1beta1"


@pytest.mark.parametrize(
    "text",
    [
        exec_info(f"{GROUP}/v1alpha1"),
        exec_info(f"{GROUP}/v2"),
        exec_info("v1"),
        exec_info("other.io/v1"),
        exec_info(f"{GROUP}/v1").replace("ExecCredential", "Other"),
        "{}",
        "[]",
        "null",
        "not json",
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    assert api_version_at_once(text) is None
    with pytest.raises(UsageError) as caught:
        credential.requested_version(text)
    assert caught.value.exit_code == 2


def parsed(body: bytes) -> dict[str, dict[str, str]]:
    value = json.loads(body)
    assert isinstance(value, dict)
    return value


def expiry(body: bytes) -> float:
    return datetime.fromisoformat(parsed(body)["status"]["expirationTimestamp"]).timestamp()


def test_the_object_holds_what_client_go_needs_and_no_newline() -> None:
    body = credential.render('to"k\\en', "v1beta1", 1740028277.9)
    assert parsed(body) == {
        "kind": "ExecCredential",
        "apiVersion": f"{GROUP}/v1beta1",
        "spec": {"interactive": False},
        "status": {"expirationTimestamp": "2025-02-20T05:11:17Z", "token": 'to"k\\en'},
    }
    assert b"\n" not in body


@settings(max_examples=50)
@given(st.floats(2, 1e8), st.floats(1e9, 2e9))
def test_the_expiry_named_is_in_the_future_and_before_the_real_one(
    lifetime: float, now: float
) -> None:
    entry = credential.build_entry(Token("t", expires=now + lifetime), "v1", now, forced=False)
    assert now < expiry(entry.body) == entry.emitted <= entry.expires
    margin = min(300, 0.1 * lifetime)
    assert margin - 0.01 <= entry.expires - entry.emitted <= margin + 1.01
    assert now < entry.refresh <= entry.emitted
    assert entry.is_fresh(now)


@pytest.mark.parametrize("lifetime", [0.1, 0.4])
def test_a_token_about_to_expire_is_refused(lifetime: float) -> None:
    with pytest.raises(MalformedError):
        credential.build_entry(Token("t", expires=NOW + lifetime), "v1", NOW, forced=False)


def test_in_an_outage_the_real_expiry_is_named_once_the_early_one_is_past() -> None:
    entry = credential.build_entry(Token("t", expires=NOW + 1000), "v1", NOW, forced=False)
    assert credential.body_for_outage(entry, "v1", NOW + 899) == entry.body
    late = credential.body_for_outage(entry, "v1", NOW + 950)
    assert late is not None
    assert expiry(late) == int(NOW + 1000)
    assert parsed(late)["status"]["token"] == "t"
    assert credential.body_for_outage(entry, "v1", NOW + 1000) is None
