"""RS256 JSON Web Tokens as Entra signs them, and the checks that an API server makes of them."""

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from e2e.world.documents import Document, Json, NotADocumentError, decode, encode, text


class TokenRefusedError(Exception):
    """The token proves nothing; the text says why and never quotes it."""


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unb64(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenRefusedError("malformed token: not base64url") from error


def _number(value: int) -> str:
    return _b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Signer:
    """One RSA key and what is published about it."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        public = key.public_key()
        der = public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._public = public.public_numbers()
        self.key_id = _b64(hashlib.sha256(der).digest()[:20])

    def sign(self, claims: Document) -> str:
        """Return the compact token over `claims`."""
        header: Document = {"typ": "JWT", "alg": "RS256", "kid": self.key_id}
        signed = f"{_b64(encode(header))}.{_b64(encode(claims))}"
        proof = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_b64(proof)}"

    def published(self) -> Document:
        """Return the JSON Web Key Set with this key."""
        key: Json = {
            "kty": "RSA",
            "use": "sig",
            "kid": self.key_id,
            "n": _number(self._public.n),
            "e": _number(self._public.e),
        }
        return {"keys": [key]}


def read_key_set(document: Document) -> dict[str, rsa.RSAPublicKey]:
    """Return the RSA keys of a JSON Web Key Set by their ids."""
    entries = document.get("keys")
    keys: dict[str, rsa.RSAPublicKey] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("kty") == "RSA":
            modulus = int.from_bytes(_unb64(text(entry, "n")), "big")
            exponent = int.from_bytes(_unb64(text(entry, "e")), "big")
            keys[text(entry, "kid")] = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an API server demands of a token, beside a true signature."""

    issuer: str
    audiences: Collection[str]
    leeway: float = 0.0


def key_id_of(token: str) -> str:
    """Return the id of the key that is said to have signed `token`; raises TokenRefusedError."""
    return text(_part(token, 0), "kid")


def verify(
    token: str, keys: Mapping[str, rsa.RSAPublicKey], expected: Expectation, now: float
) -> Document:
    """Return the claims of a token that is worth believing at `now`; else TokenRefusedError."""
    header = _part(token, 0)
    if text(header, "alg") != "RS256":
        raise TokenRefusedError("the algorithm is not RS256")
    key = keys.get(text(header, "kid"))
    if key is None:
        raise TokenRefusedError("signed by an unknown key")
    signed, _, proof = token.rpartition(".")
    try:
        key.verify(_unb64(proof), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise TokenRefusedError("the signature is wrong") from error
    claims = _part(token, 1)
    _check(claims, expected, now)
    return claims


def _check(claims: Document, expected: Expectation, now: float) -> None:
    if text(claims, "iss") != expected.issuer:
        raise TokenRefusedError("another issuer")
    if text(claims, "aud") not in expected.audiences:
        raise TokenRefusedError("another audience")
    if now >= _seconds(claims, "exp") + expected.leeway:
        raise TokenRefusedError("expired")
    if now < _seconds(claims, "nbf") - expected.leeway:
        raise TokenRefusedError("not valid yet")


def _seconds(claims: Document, name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefusedError(f"no {name}")
    return value


def _part(token: str, index: int) -> Document:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefusedError("malformed token: not three parts")
    try:
        return decode(_unb64(parts[index]))
    except NotADocumentError as error:
        raise TokenRefusedError("malformed token: not JSON") from error
