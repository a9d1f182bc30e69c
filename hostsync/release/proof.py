"""An opened candidate compared with its digest and its signature, before any of it is parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256

import msgspec

from hostsync.errors import Reason, Refused
from hostsync.model import Digest
from hostsync.release.flaw import FETCH_AGAIN, KEEP_STILL, Flaw
from hostsync.release.signature import (
    PublicKey,
    Signed,
    UnsignedError,
    parse_signature,
    verify,
)
from hostsync.release.source import Opened, is_directory, read_opened

_SIGN = "have the release signed by a key in release.trusted_keys"


def prove(
    opened: Opened,
    expected: Digest | None,
    keys: Sequence[PublicKey],
    signature: Callable[[], bytes],
) -> Opened:
    """The same object with the digest that its bytes have; `signature` is read only if asked for.

    A digest is compared first, then, if there are keys, the signature. Of a directory, which
    has no bytes of its own, the digest is compared later, and a signature is refused. What was
    downloaded has been hashed already. Raises Refused (bad-candidate, untrusted-source).
    """
    if is_directory(opened):
        if keys:
            raise _untrusted(opened, "a directory cannot be signed", "order its archive")
        return msgspec.structs.replace(opened, digest=expected)
    try:
        if opened.digest is None:
            opened = _hashed(opened, expected)
        if keys:
            _check_signature(opened, keys, signature())
    except Flaw as flaw:
        raise Refused(flaw.reason, f"{opened}: {flaw.why}", remedy=flaw.remedy) from flaw
    return opened


def _hashed(opened: Opened, expected: Digest | None) -> Opened:
    total = sha256()
    for chunk in read_opened(opened):
        total.update(chunk)
    found = Digest(total.hexdigest())
    if expected is not None and found != expected:
        raise Flaw(f"its SHA-256 is {found}, ordered was {expected}", remedy=FETCH_AGAIN)
    return msgspec.structs.replace(opened, digest=found)


def _check_signature(opened: Opened, keys: Sequence[PublicKey], signature: bytes) -> None:
    trouble = ""
    try:
        verify(parse_signature(signature), keys, _signed(opened))
    except UnsignedError as error:
        trouble = str(error)
    if trouble:
        raise _untrusted(opened, trouble, _SIGN)


def _signed(opened: Opened) -> Signed:
    """What a signature has to cover: the bytes whose SHA-256 is known, and no others.

    The file may be written by somebody meanwhile, so both digests are of the same reading.
    """
    prehash, total = blake2b(), sha256()
    for chunk in read_opened(opened):
        prehash.update(chunk)
        total.update(chunk)
    _check_same(opened, total.hexdigest())

    def content() -> bytes:
        data = b"".join(read_opened(opened))
        _check_same(opened, sha256(data).hexdigest())
        return data

    return Signed(blake2b=prehash.digest(), content=content)


def _check_same(opened: Opened, found: str) -> None:
    if opened.digest != Digest(found):
        raise Flaw("it changed while it was being read", remedy=KEEP_STILL)


def _untrusted(opened: Opened, why: str, remedy: str) -> Refused:
    return Refused(Reason.UNTRUSTED_SOURCE, f"refusing {opened}: {why}", remedy=remedy)
