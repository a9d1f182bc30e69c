"""From what an order names to an opened candidate that is proven as far as the order can.

A path without a digest, on a host that asks for no signature, is only passed on: it is opened and
inspected later, once. All else is opened here, read to its end, and compared with the digest and
the signature before any of it is parsed. Nothing here needs the host's lock: a download is a file
without a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hostsync.activation.host import Host
from hostsync.errors import FetchCause, FetchError, Reason, Refused
from hostsync.model import Digest
from hostsync.release import Given, Opened
from hostsync.release.fetch import Means, OnFetched, check_https, fetch, fetch_bytes, show_nothing
from hostsync.release.proof import prove
from hostsync.release.setback import Terms
from hostsync.release.signature import (
    SIGNATURE_LIMIT,
    SUFFIX,
    PublicKey,
    UnsignedError,
    load_keys,
)
from hostsync.release.source import open_path
from hostsync.release.url import DownloadUrl, Place

_SIGN = "have the release signed, or name its signature with --signature"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What an order brings to prove its candidate; `signature` is a file, else one beside it."""

    digest: Digest | None = None
    signature: Path | None = None
    terms: Terms = msgspec.field(default_factory=Terms)
    on_fetched: OnFetched = show_nothing


@contextmanager
def obtain(host: Host, place: Place, proof: Proof) -> Iterator[Given]:
    """The candidate at `place`, open and proven; closed, and a download gone, on leaving.

    Raises Refused (untrusted-source) for a URL without a digest or in clear text and for a
    release without a good signature where the configuration asks for one; Refused
    (bad-candidate) for other bytes than those ordered; FetchError; DiskError.
    """
    keys = _trusted_keys(host)
    means = _means(host, proof)
    if isinstance(place, DownloadUrl):
        with _downloaded(host, place, proof, means) as opened:
            yield prove(opened, proof.digest, keys, lambda: _signature(place, proof, means))
    elif keys or proof.digest:
        with open_path(place) as opened:
            yield prove(opened, proof.digest, keys, lambda: _signature(place, proof, means))
    else:
        yield place


@contextmanager
def _downloaded(host: Host, url: DownloadUrl, proof: Proof, means: Means) -> Iterator[Opened]:
    if proof.digest is None:
        brief = f"refusing to fetch {url}: no digest was given"
        remedy = "give the SHA-256 of the archive with --sha256"
        raise Refused(Reason.UNTRUSTED_SOURCE, brief, remedy=remedy)
    root = host.agent.layout.root
    if not root.is_dir():
        brief = f"{host.agent.name} is not installed: {root} is missing"
        raise Refused(Reason.NOT_INSTALLED, brief, remedy="run `hostsync install` first")
    check_https(url, means.terms)
    host.event("fetch", "started", str(url))
    with fetch(url, proof.digest, root, means) as opened:
        size = os.fstat(opened.fd).st_size
        host.event("fetch", "complete", str(url), f"{size} bytes, {proof.digest.short}")
        yield opened


def _means(host: Host, proof: Proof) -> Means:
    room = host.probe.space(host.agent.layout.root).free - host.config.reserve_bytes
    terms = msgspec.structs.replace(proof.terms, insecure_hosts=host.config.trust.insecure_hosts)
    base = Means(fs=host.fs, clock=host.clock, terms=terms, on_fetched=proof.on_fetched)
    return msgspec.structs.replace(base, room=min(base.room, max(room, 0)))


def _trusted_keys(host: Host) -> tuple[PublicKey, ...]:
    """The keys one of which must have signed; none when the configuration asks for none."""
    entries = host.config.trust.trusted_keys
    try:
        return load_keys(entries) if entries else ()
    except UnsignedError as error:
        brief, remedy = f"no release can be trusted: {error}", "mend release.trusted_keys"
    raise Refused(Reason.UNTRUSTED_SOURCE, brief, remedy=remedy)


def _signature(place: Place, proof: Proof, means: Means) -> bytes:
    """The detached signature: the file that was named, else what lies beside the candidate."""
    if proof.signature is not None:
        return _read(proof.signature)
    if isinstance(place, DownloadUrl):
        try:
            return fetch_bytes(place.beside(SUFFIX), SIGNATURE_LIMIT, means)
        except FetchError as error:
            if error.cause is not FetchCause.STATUS:
                raise
            brief, remedy = f"refusing {place}: it is unsigned: {error.brief}", _SIGN
        raise Refused(Reason.UNTRUSTED_SOURCE, brief, remedy=remedy)
    return _read(place.with_name(place.name + SUFFIX))


def _read(path: Path) -> bytes:
    """At most one byte more than a signature has, without waiting on what is no file."""
    try:
        with open_path(path) as opened:
            return os.read(opened.fd, SIGNATURE_LIMIT + 1)
    except (Refused, OSError):
        brief = f"it is unsigned: {path} cannot be read"
    raise Refused(Reason.UNTRUSTED_SOURCE, brief, remedy=_SIGN)
