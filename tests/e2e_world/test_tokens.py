"""What an API server believes, and what it does not."""

import dataclasses

import pytest

from e2e.world.documents import Document
from e2e.world.identity import AKS_SERVER, ISSUER, SYSTEM_ASSIGNED, claims_for
from e2e.world.tokens import (
    Expectation,
    Signer,
    TokenRefusedError,
    key_id_of,
    read_key_set,
    verify,
)
from tests.e2e_world.keys import FORGERY, SIGNER

ISSUED = 1_800_000_000
LIFETIME = 3600
EXPECTED = Expectation(issuer=ISSUER, audiences=(AKS_SERVER,))
KEYS = read_key_set(SIGNER.published())


def token(**changes: str | int | None) -> str:
    claims: Document = {**claims_for(SYSTEM_ASSIGNED, AKS_SERVER, ISSUED, LIFETIME), **changes}
    return SIGNER.sign({name: value for name, value in claims.items() if value is not None})


def test_a_token_is_believed_from_its_issue_until_just_before_it_expires() -> None:
    for moment in (ISSUED, ISSUED + LIFETIME - 1):
        claims = verify(token(), KEYS, EXPECTED, moment)
        assert claims["oid"] == SYSTEM_ASSIGNED.object_id


@pytest.mark.parametrize(
    ("changes", "moment", "reason"),
    [
        ({}, ISSUED + LIFETIME, "expired"),
        ({}, ISSUED - 1, "not valid yet"),
        ({"iss": "https://sts.windows.net/other/"}, ISSUED, "another issuer"),
        ({"aud": "https://management.azure.com/"}, ISSUED, "another audience"),
        ({"exp": None}, ISSUED, "no exp"),
        ({"nbf": "1"}, ISSUED, "no nbf"),
    ],
)
def test_claims_that_do_not_hold_are_refused_by_name(
    changes: dict[str, str | int | None], moment: int, reason: str
) -> None:
    with pytest.raises(TokenRefusedError, match=reason):
        verify(token(**changes), KEYS, EXPECTED, moment)


def test_a_leeway_forgives_a_clock_that_is_off() -> None:
    lenient = dataclasses.replace(EXPECTED, leeway=60)
    assert verify(token(), KEYS, lenient, ISSUED + LIFETIME + 59)


def test_another_key_under_a_published_id_is_a_wrong_signature() -> None:
    forger = Signer(FORGERY)
    forger.key_id = SIGNER.key_id
    forged = forger.sign(claims_for(SYSTEM_ASSIGNED, AKS_SERVER, ISSUED, LIFETIME))
    with pytest.raises(TokenRefusedError, match="signature"):
        verify(forged, KEYS, EXPECTED, ISSUED)


def test_an_unpublished_key_is_refused_before_anything_is_believed() -> None:
    stranger = Signer(FORGERY)
    unknown = stranger.sign(claims_for(SYSTEM_ASSIGNED, AKS_SERVER, ISSUED, LIFETIME))
    assert key_id_of(unknown) == stranger.key_id != SIGNER.key_id
    with pytest.raises(TokenRefusedError, match="unknown key"):
        verify(unknown, KEYS, EXPECTED, ISSUED)


@pytest.mark.parametrize("garbage", ["", "a.b", "a.b.c", "e30.e30.", "....", "ä.ö.ü"])
def test_what_is_not_a_token_is_refused_and_never_a_crash(garbage: str) -> None:
    with pytest.raises(TokenRefusedError):
        verify(garbage, KEYS, EXPECTED, ISSUED)


def test_an_unsigned_token_is_refused() -> None:
    _, claims, _ = token().split(".")
    with pytest.raises(TokenRefusedError, match="RS256"):
        verify(f"eyJhbGciOiJub25lIn0.{claims}.", KEYS, EXPECTED, ISSUED)
