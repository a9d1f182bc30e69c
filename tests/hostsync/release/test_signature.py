"""Signatures: those of the real minisign verify, and nothing else does."""

from __future__ import annotations

from base64 import b64encode
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.release.signature import (
    Signed,
    UnsignedError,
    load_keys,
    parse_signature,
    verify,
)
from tests.hostsync.release.minisign import Signer

# Made by minisign itself over the four bytes `test`.
REAL_KEY = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
REAL_PREHASHED = b"""untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1633700835\tfile:test\tprehashed
wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==
"""
REAL_LEGACY = b"""untrusted comment: signature from minisign secret key
RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=
trusted comment: timestamp:1555779966\tfile:test
QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==
"""
SIGNER = Signer()
DATA = b"a release"


def signed(data: bytes) -> Signed:
    return Signed(blake2b=blake2b(data).digest(), content=lambda: data)


def check(signature: bytes, data: bytes = DATA, *keys: str) -> None:
    verify(parse_signature(signature), load_keys(keys or (SIGNER.public,)), signed(data))


@pytest.mark.parametrize("signature", [REAL_PREHASHED, REAL_LEGACY], ids=["prehashed", "legacy"])
def test_a_signature_of_the_real_minisign_verifies_over_its_bytes_only(signature: bytes) -> None:
    check(signature, b"test", REAL_KEY)
    check(signature.replace(b"\n", b"\r\n"), b"test", REAL_KEY)
    with pytest.raises(UnsignedError, match="does not match"):
        check(signature, b"Test", REAL_KEY)


@pytest.mark.parametrize("prehashed", [True, False])
def test_the_key_is_found_among_several_by_its_id(*, prehashed: bool) -> None:
    other = Signer(id=b"abcdefgh")
    check(SIGNER.sign(DATA, prehashed=prehashed), DATA, other.public, SIGNER.public)


def test_another_key_of_the_same_id_does_not_vouch() -> None:
    with pytest.raises(UnsignedError, match="does not match"):
        check(Signer().sign(DATA))


def test_a_key_that_is_not_trusted_is_named() -> None:
    with pytest.raises(UnsignedError, match="key 6867666564636261, which is not trusted"):
        check(Signer(id=b"abcdefgh").sign(DATA))


def test_a_trusted_comment_of_another_signature_does_not_pass() -> None:
    ours, theirs = SIGNER.sign(DATA), SIGNER.sign(DATA, comment="file:other")
    mixed = b"\n".join([*ours.split(b"\n")[:2], *theirs.split(b"\n")[2:]])
    check(mixed)  # Both are of this key over the same bytes, so this is a good one.
    forged = ours.replace(b"file:x", b"file:y")
    with pytest.raises(UnsignedError, match="does not match"):
        check(forged)


@pytest.mark.parametrize("line", range(4))
def test_a_signature_that_lacks_a_line_is_refused(line: int) -> None:
    lines = SIGNER.sign(DATA).splitlines(keepends=True)
    with pytest.raises(UnsignedError):
        check(b"".join(lines[:line] + lines[line + 1 :]))


@given(at=st.integers(0, len(SIGNER.sign(DATA)) - 1), bit=st.integers(0, 7))
def test_no_flipped_bit_below_the_first_line_verifies(at: int, bit: int) -> None:
    whole = bytearray(SIGNER.sign(DATA))
    first = whole.index(b"\n")
    whole[at] ^= 1 << bit
    try:
        check(bytes(whole))
    except UnsignedError:
        return
    # The first comment is untrusted, and the end of a base64 text says nothing.
    assert at <= first or chr(whole[at]) == "\n" or b"=" in whole[at : at + 3]


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_as_a_signature(data: bytes) -> None:
    with pytest.raises(UnsignedError):
        parse_signature(data)


def test_a_key_is_read_from_text_and_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "minisign.pub"
    path.write_text(f"untrusted comment: minisign public key\n{SIGNER.public}\n")
    assert load_keys([str(path)]) == load_keys([SIGNER.public])


def test_keys_that_cannot_be_loaded_are_left_out_and_none_is_an_error(tmp_path: Path) -> None:
    damaged = b64encode(b"Xx" + bytes(40)).decode()
    (tmp_path / "empty").touch()
    bad = [str(tmp_path / "missing"), str(tmp_path / "empty"), str(tmp_path), damaged, "RW"]
    for entry in bad:
        with pytest.raises(UnsignedError, match="no trusted key can be loaded"):
            load_keys([entry])
    assert len(load_keys([*bad, SIGNER.public])) == 1
