"""A minisign that signs, written for tests from the description of its format."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import blake2b

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A secret key and its id."""

    id: bytes = b"12345678"
    secret: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public(self) -> str:
        raw = self.secret.public_key().public_bytes_raw()
        return b64encode(b"Ed" + self.id + raw).decode()

    def sign(self, data: bytes, *, prehashed: bool = True, comment: str = "file:x") -> bytes:
        message = blake2b(data).digest() if prehashed else data
        signature = self.secret.sign(message)
        body = b64encode((b"ED" if prehashed else b"Ed") + self.id + signature).decode()
        whole = b64encode(self.secret.sign(signature + comment.encode())).decode()
        lines = ["untrusted comment: test", body, f"trusted comment: {comment}", whole]
        return "\n".join([*lines, ""]).encode()
