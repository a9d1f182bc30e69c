"""What a run would do and why, for a person: no secret, and nobody is asked."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping

from credential_shim import cache, entries, gate
from credential_shim._version import PROTOCOL, VERSION
from credential_shim.arguments import SHARED_CONFIG, Request
from credential_shim.credential import rfc3339
from credential_shim.errors import ShimError, UsageError
from credential_shim.fastpath import Release
from credential_shim.identity import Identity, Tenant
from credential_shim.proofs import CERTIFICATE, line_of

_SHARED_DIRECTORY = SHARED_CONFIG.rpartition("/")[0]


def explain(
    request: Request, release: Release, environ: Mapping[str, str], api_version: str
) -> Iterator[str]:
    """Yield one line per fact: ``name: what``."""
    identity, now = request.identity, time.time()
    yield f"release: {VERSION} (protocol {PROTOCOL}) in {release.directory}"
    yield f"gate: {_gate(request, release, now)}"
    yield f"login: {identity.login}{_origin(request, 'login')}"
    yield f"identity: {_who(identity)}{_origin(request, 'client_id')}"
    yield f"server id: {identity.server_id}{_origin(request, 'server_id')}"
    yield f"asks: {_place(identity, environ)}"
    if identity.tenant is not None:
        yield f"proof: {_proof(identity.tenant)}"
    yield f"configuration: {_configuration(request)}"
    yield f"cache: {_cache(request, api_version, now)}"
    yield f"log: {request.log}{_origin(request, 'log')}"
    for note in request.notes:
        yield f"warning: {note}"


def _gate(request: Request, release: Release, now: float) -> str:
    view = gate.observe(release, now)
    act, reason = gate.decide(view, serve_on_skew=request.serve_on_skew, may_reexec=True)
    return f"{act}: {reason}" if reason else f"{act}: seals agree"


def _origin(request: Request, name: str) -> str:
    origin = request.layers.origins.get(name)
    return "" if origin is None else f" (from {origin})"


def _who(identity: Identity) -> str:
    if identity.tenant is not None:
        return f"client_id {identity.tenant.client_id} of tenant {identity.tenant.tenant_id}"
    if identity.selector is None:
        return "the system-assigned identity"
    return " ".join(identity.selector)


def _place(identity: Identity, environ: Mapping[str, str]) -> str:
    if identity.tenant is None:
        return f"http://{identity.endpoint}, directly"
    from credential_shim.proxy import proxy_for

    host, _, port = identity.tenant.authority.removeprefix("https://").partition(":")
    try:
        proxy = proxy_for(host, int(port or 443), environ)
    except UsageError as error:
        return f"{identity.tenant.authority}, but {error.message}"
    return f"{identity.tenant.authority}, {'directly' if proxy is None else f'by proxy {proxy}'}"


def _proof(tenant: Tenant) -> str:
    proof = tenant.proof
    try:
        content = proof.read()
        if proof.kind != CERTIFICATE:
            proof.text()
            return f"{proof.label}, readable"
        from credential_shim.assertion import load

        password = None if proof.password is None else line_of(proof.password).encode()
        found = load(content, password, str(proof.place)).certificate
        ends = rfc3339(found.not_valid_after_utc.timestamp())
        return f"{proof.label}, serial {found.serial_number:x}, valid until {ends}"
    except ShimError as error:
        return f"{proof.label}, unusable: {error.message}"


def _configuration(request: Request) -> str:
    """Which file, whose it is, and its keys; where there is none, what the host says of that."""
    file = request.layers.file
    if file is None:
        reason = "" if "no_config" in request.layers.flags else _not_shared()
        return (
            f"none; the host shares one, but not with this machine: {reason}" if reason else "none"
        )
    keys = ", ".join(sorted(file.values))
    if file.path != SHARED_CONFIG:
        return f"{file.path}, own file ({keys})"
    way = "bound" if _is_mount_point(_SHARED_DIRECTORY) else "copied"
    return f"{file.path}, the host's, {way} ({keys})"


def _not_shared() -> str:
    with contextlib.suppress(OSError), open(f"{_SHARED_DIRECTORY}/NOT-SHARED", "rb") as file:
        text = file.read(1024).decode("utf-8", "replace").strip()
        return "".join(char if char.isprintable() else "?" for char in text)
    return ""


def _is_mount_point(path: str) -> bool:
    """Whether something is mounted there; the device does not tell, a bind keeps it."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as table:
        return any(line.split()[4] == path.encode() for line in table)
    return False


def _cache(request: Request, api_version: str, now: float) -> str:
    path = request.cache_dir
    directory = entries.open_directory(path)
    if directory is None:
        return f"{path} is {'not usable' if os.path.lexists(path) else 'not there yet'}"
    try:
        store = cache.Store(directory, entries.key_of(request.identity, api_version))
    except UsageError as error:
        os.close(directory)
        return f"{path}, {error.message}"
    held, failure = store.load(), store.failure(now)
    store.close()
    parts = [path, "no token" if held is None else _entry(held, now)]
    if failure is not None:
        parts.append(f"a failure is remembered: {failure.message}")
    return ", ".join(parts)


def _entry(entry: entries.Entry, now: float) -> str:
    if not entry.is_usable(now):
        return f"a token that ended {rfc3339(entry.expires)}"
    renewed = "due for renewal" if not entry.is_fresh(now) else f"renewed {rfc3339(entry.refresh)}"
    return f"a token until {rfc3339(entry.expires)}, {renewed}"
