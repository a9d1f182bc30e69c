"""Minisign signatures: who made a release, by Ed25519 over its bytes.

Facts (https://jedisct1.github.io/minisign/, "Signature format"): a key is base64 of `Ed`, 8 bytes
of key id and 32 of key; a signature is base64 of its algorithm, the key id and 64 bytes. `ED`
signs the BLAKE2b-512 of the file, the older `Ed` the file itself, which then has to be in memory.
A second signature covers the first and the trusted comment; it must hold too, or another
comment could be put beside a good signature.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

SIGNATURE_LIMIT = 8192
"""A signature file has at most this many bytes."""
SUFFIX = ".minisig"

_KEY_LIMIT = 4096
_COMMENT, _TRUSTED = b"untrusted comment:", b"trusted comment: "
_ID_BYTES, _KEY_BYTES, _SIGNATURE_BYTES = 8, 32, 64


class UnsignedError(Exception):
    """There is no good signature of a trusted key; the text says why, without any content."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is trusted; `id` is what signatures name it by."""

    id: bytes
    key: bytes


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A signature file, taken apart."""

    is_prehashed: bool
    key_id: bytes
    signature: bytes
    comment: bytes
    """The trusted comment, covered by `comment_signature` together with `signature`."""
    comment_signature: bytes


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """What was signed, in both ways of signing; `content` reads all of it into memory."""

    blake2b: bytes
    content: Callable[[], bytes]


def load_keys(entries: Sequence[str]) -> tuple[PublicKey, ...]:
    """The keys that the configuration gives as text or as files.

    One that cannot be loaded is left out: it verifies nothing. Raises UnsignedError, naming the
    last one's trouble, when none is left.
    """
    keys: list[PublicKey] = []
    trouble = "release.trusted_keys is empty"
    for number, entry in enumerate(entries, 1):
        try:
            keys.append(_key(_read_key(Path(entry)) if entry.startswith("/") else entry.encode()))
        except OSError as error:
            trouble = f"{entry} cannot be read: {error.strerror}"
        except ValueError as error:
            trouble = f"entry {number} of release.trusted_keys {error}"
    if not keys:
        raise UnsignedError(f"no trusted key can be loaded: {trouble}")
    return tuple(keys)


def parse_signature(data: bytes) -> Signature:
    """Read a signature file strictly; raises UnsignedError."""
    lines = data.removesuffix(b"\n").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in lines]
    if len(data) > SIGNATURE_LIMIT or len(lines) != 4 or not lines[0].startswith(_COMMENT):
        raise UnsignedError("the signature is not a minisign signature of four lines")
    if not lines[2].startswith(_TRUSTED):
        raise UnsignedError("the signature lacks its trusted comment")
    try:
        body = _decoded(lines[1], 2 + _ID_BYTES + _SIGNATURE_BYTES)
        comment_signature = _decoded(lines[3], _SIGNATURE_BYTES)
    except ValueError:
        body, comment_signature = b"", b""
    if body[:2] not in {b"ED", b"Ed"}:
        raise UnsignedError("the signature is malformed")
    return Signature(
        is_prehashed=body[:2] == b"ED",
        key_id=body[2 : 2 + _ID_BYTES],
        signature=body[2 + _ID_BYTES :],
        comment=lines[2].removeprefix(_TRUSTED),
        comment_signature=comment_signature,
    )


def verify(signature: Signature, keys: Sequence[PublicKey], signed: Signed) -> None:
    """Raise UnsignedError unless one of the keys made both signatures over what was signed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    named = [key for key in keys if key.id == signature.key_id]
    if not named:
        shown = signature.key_id[::-1].hex().upper()
        raise UnsignedError(f"it is signed by key {shown}, which is not trusted here")
    message = signed.blake2b if signature.is_prehashed else signed.content()
    for key in named:
        public = Ed25519PublicKey.from_public_bytes(key.key)
        try:
            public.verify(signature.signature, message)
            public.verify(signature.comment_signature, signature.signature + signature.comment)
        except InvalidSignature:
            continue
        return
    raise UnsignedError("its signature does not match")


def _read_key(path: Path) -> bytes:
    with open(path, "rb") as file:
        lines = file.read(_KEY_LIMIT).splitlines()
    plain = [line for line in lines if line and not line.startswith(_COMMENT)]
    if len(plain) != 1:
        raise ValueError("is no minisign public key file")
    return plain[0]


def _key(text: bytes) -> PublicKey:
    try:
        data = _decoded(text.strip(), 2 + _ID_BYTES + _KEY_BYTES)
    except ValueError:
        data = b""
    if data[:2] != b"Ed":
        raise ValueError("is no minisign public key")
    return PublicKey(id=data[2 : 2 + _ID_BYTES], key=data[2 + _ID_BYTES :])


def _decoded(text: bytes, size: int) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if len(data) != size:
        raise ValueError("of another length")
    return data
