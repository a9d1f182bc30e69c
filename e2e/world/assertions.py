"""A client's signed assertion (RFC 7523, PS256), as Entra checks it (CONTRACTS §6)."""

import base64
import binascii
import json

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

LONGEST_SECONDS = 600


def proves(assertion: str, pem: bytes, client_id: str, audience: str, now: float) -> bool:
    """Say whether `assertion` was signed by the certificate in `pem`, for this client and URL."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        head, said, signature = (_plain(part) for part in assertion.split("."))
        header, claims = json.loads(head), json.loads(said)
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            return False
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
        key.verify(signature, assertion.rpartition(".")[0].encode(), pss, hashes.SHA256())
    except (ValueError, binascii.Error, InvalidSignature):
        return False
    thumbprint = base64.urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).rstrip(b"=")
    return bool(
        (header.get("alg"), header.get("x5t#S256")) == ("PS256", thumbprint.decode())
        and claims.get("iss") == claims.get("sub") == client_id
        and claims.get("aud") == audience
        and claims.get("jti")
        and claims.get("nbf", now) <= now + 1 < claims.get("exp", 0) <= now + LONGEST_SECONDS
    )


def _plain(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
