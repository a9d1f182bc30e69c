"""A client's certificate and the assertion it signs (RFC 7523, PS256), made anew for each request.

The file is PEM or PKCS#12, told apart by content. PEM may hold certificates and one private key in
any order, PKCS#1 or PKCS#8, encrypted or not; the certificate is the one that matches the key.
"""

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    load_pem_private_key,
    pkcs12,
)

from credential_shim.errors import UsageError
from credential_shim.proofs import Proof, line_of

LIFETIME_SECONDS = 300
CLOCK_SLACK_SECONDS = 60
"""The assertion counts from a little earlier, for an issuer whose clock is behind."""

_PRIVATE_KEY = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Credential:
    """A private key, its certificate, and the certificates above that."""

    __slots__ = ("certificate", "chain", "key")

    def __init__(
        self,
        key: rsa.RSAPrivateKey,
        certificate: x509.Certificate,
        chain: tuple[x509.Certificate, ...],
    ) -> None:
        self.key: Final = key
        self.certificate: Final = certificate
        self.chain: Final = chain


def make_assertion(proof: Proof, client_id: str, audience: str, now: float) -> str:
    """Return a JWT of ``client_id`` for the token URL ``audience``; raises UsageError."""
    password = None if proof.password is None else line_of(proof.password).encode()
    credential = load(proof.read(), password, str(proof.place))
    header: dict[str, object] = {
        "alg": "PS256",
        "typ": "JWT",
        "x5t#S256": _encode(credential.certificate.fingerprint(hashes.SHA256())),
    }
    if proof.chain:
        # RFC 7515 §4.1.6: standard Base64, the signing certificate first.
        certificates = (credential.certificate, *credential.chain)
        x5c = [b64encode(each.public_bytes(Encoding.DER)).decode() for each in certificates]
        header["x5c"] = x5c
    return _sign(credential.key, header, _claims(client_id, audience, now))


def _claims(client_id: str, audience: str, now: float) -> dict[str, object]:
    return {
        "aud": audience,
        "iss": client_id,
        "sub": client_id,
        "jti": os.urandom(16).hex(),
        "iat": int(now),
        "nbf": int(now) - CLOCK_SLACK_SECONDS,
        "exp": int(now) + LIFETIME_SECONDS,
    }


def _sign(key: rsa.RSAPrivateKey, header: dict[str, object], claims: dict[str, object]) -> str:
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (header, claims))
    text = ".".join(map(_encode, parts))
    pss = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
    return f"{text}.{_encode(key.sign(text.encode(), pss, hashes.SHA256()))}"


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def load(raw: bytes, password: bytes | None, where: str) -> Credential:
    """Return the credential in ``raw``; raises UsageError naming ``where`` it stands and why not.

    A password that is missing and one that is wrong are told apart. Texts of the parsers, which
    might quote what they parse, are not shown.
    """
    if b"-----BEGIN " in raw:
        return _load_pem(raw, password, where)
    if raw[:1] == b"\x30":
        return _load_pkcs12(raw, password, where)
    raise UsageError(f"{where} is neither PEM nor PKCS#12")


def _load_pem(raw: bytes, password: bytes | None, where: str) -> Credential:
    blocks = list(_PRIVATE_KEY.finditer(raw))
    if len(blocks) != 1:
        raise UsageError(f"{where} holds {len(blocks)} private keys instead of one")
    block = blocks[0]
    encrypted = block[1] == b"ENCRYPTED " or b"Proc-Type: 4,ENCRYPTED" in block[0]
    if encrypted and password is None:
        raise _no_password(where)
    try:
        key = load_pem_private_key(block[0], password if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        cause = "its password is wrong" if encrypted else "it is damaged, or of an unknown kind"
        raise UsageError(f"the private key in {where} cannot be read: {cause}") from error
    try:
        certificates = x509.load_pem_x509_certificates(raw)
    except ValueError as error:
        raise UsageError(f"{where} holds no certificate that can be read") from error
    return _matching(key, certificates, where)


def _load_pkcs12(raw: bytes, password: bytes | None, where: str) -> Credential:
    # Without a password there are two conventions: none at all, and an empty one.
    for candidate in (None, b"") if password is None else (password,):
        try:
            loaded = pkcs12.load_pkcs12(raw, candidate)
        except (ValueError, UnsupportedAlgorithm):
            continue
        found = [each.certificate for each in (loaded.cert, *loaded.additional_certs) if each]
        return _matching(loaded.key, found, where)
    if password is None:
        raise _no_password(where)
    raise UsageError(f"{where} cannot be read: its password is wrong, or it is damaged")


def _matching(key: object, certificates: list[x509.Certificate], where: str) -> Credential:
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UsageError(f"{where} holds no RSA private key, and Entra takes no other")
    numbers = key.public_key().public_numbers()
    for each in certificates:
        public = each.public_key()
        if isinstance(public, rsa.RSAPublicKey) and public.public_numbers() == numbers:
            return Credential(key, each, _chain(each, certificates))
    raise UsageError(f"{where} holds no certificate for its private key")


def _chain(
    leaf: x509.Certificate, certificates: list[x509.Certificate]
) -> tuple[x509.Certificate, ...]:
    """The certificates above ``leaf``, each the issuer of the one before."""
    chain: list[x509.Certificate] = []
    last, rest = leaf, [each for each in certificates if each != leaf]
    while above := next((each for each in rest if each.subject == last.issuer), None):
        chain.append(above)
        rest.remove(above)
        last = above
    return tuple(chain)


def _no_password(where: str) -> UsageError:
    return UsageError(
        f"{where} needs a password, and none is given: use --client-certificate-password-file"
    )
