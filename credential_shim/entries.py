"""Cached credentials as the fast path reads them: file names, file format, who was served.

One file per identity in a directory only its owner can enter. First line: the times of the entry
(refresh first) and how it was obtained; second line: the full key; the rest: the exact bytes of
the ExecCredential object. The key covers everything a credential depends on, and is compared in
full, so neither a shortened name nor a copied file can serve one identity's token to another.

client-go keeps a credential in memory until it expires, and runs the plugin early for one reason
only: the server answered 401. It does not say so. But when the same process (by id and start
time) asks again for an entry it was given before, that entry was rejected. Sixty short-lived
processes which ask once each are sixty different askers.
"""

import os

from credential_shim._version import PROTOCOL
from credential_shim.errors import MalformedError, RememberedError, UnreachableError
from credential_shim.identity import Identity

LONGEST_NAME = 200
ENTRY_LIMIT = 96 * 1024
FORCED_PAUSE = 60.0
"""Seconds for which an entry fetched because of a rejection is not taken as rejected again."""
CLOCK_SLACK = 60.0
"""An entry from further in the future than this was written under a wrong clock."""

LONGEST_HOLD = 600.0
"""However long the endpoint asks for: a mistaken header must not keep a node down for days."""

_FAILURE_LIMIT = 4096
_FAILURE_CODES = range(UnreachableError.exit_code, MalformedError.exit_code + 1)
"""What a fetch ends in; above all never 0, which would pass for success."""
_SEEN_SUFFIX = ".seen"
_SEEN_LIMIT = 16 * 1024
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Entry:
    """A cached credential; all times are seconds since the epoch on the local clock."""

    __slots__ = ("body", "emitted", "expires", "fetched", "forced", "refresh")

    def __init__(
        self, body: bytes, *, times: tuple[float, float, float, float], forced: bool
    ) -> None:
        self.body: Final = body
        self.refresh, self.fetched, self.emitted, self.expires = times
        self.forced: Final = forced

    def is_fresh(self, now: float) -> bool:
        """Say whether the entry may be served without asking the endpoint."""
        return now < self.refresh and self.fetched <= now + CLOCK_SLACK

    def is_usable(self, now: float) -> bool:
        """Say whether the token behind the entry is still valid."""
        return now < self.expires and self.fetched <= now + CLOCK_SLACK

    @property
    def generation(self) -> str:
        """Name of this fetch, the same in every process that reads the entry."""
        return f"{self.fetched:.6f}"


def key_of(identity: Identity, api_version: str) -> str:
    """Return the key of a credential: unequal for unequal inputs.

    It ends in ``@`` and the revision of the proof, where there is one: a credential got with one
    secret is never served for another. Raises UsageError when the proof cannot be read.
    """
    revision = ""
    kind, value = identity.selector or ("system", "")
    tenant = identity.tenant
    if tenant is not None:
        kind, value = tenant.proof.label, tenant.client_id
        revision = f"@{_escape(tenant.proof.revision())}"
    fields = (str(PROTOCOL), api_version, identity.login, kind, value)
    return ",".join(map(_escape, (*fields, identity.server_id, identity.place))) + revision


def name_of(key: str) -> str:
    """Return the file name for ``key``: the key itself, or its beginning and a digest.

    The revision has no part in it, so that the entry of a rotated secret is replaced.
    """
    stem = key.partition("@")[0]
    if len(stem) <= LONGEST_NAME:
        return stem
    return f"{stem[: LONGEST_NAME - 17]}~{_fnv1a(stem.encode()):016x}"


def stamp_of(status: os.stat_result) -> str:
    """Return text that differs once a file was replaced, written to, or given another mode."""
    times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ".".join(f"{number:x}" for number in (status.st_dev, status.st_ino, *times))


def open_directory(path: str) -> int | None:
    """Open the cache directory; None unless it is ours alone and no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if _is_private(os.fstat(descriptor), 0o040000):
        return descriptor
    os.close(descriptor)
    return None


def load(directory: int, key: str) -> Entry | None:
    """Read the entry of ``key``; None when there is none that can be trusted."""
    raw = read_private(directory, name_of(key), ENTRY_LIMIT)
    return None if raw is None else _parse(raw, key)


def failure(directory: int, key: str, now: float) -> RememberedError | None:
    """Return the failure of an earlier fetch of ``key`` that still holds, if any."""
    raw = read_private(directory, f"{name_of(key)}.fail", _FAILURE_LIMIT)
    return None if raw is None else _parse_failure(raw, key, now)


def serialize(entry: Entry, key: str) -> bytes:
    """Return the file content for ``entry``."""
    times = (entry.refresh, entry.fetched, entry.emitted, entry.expires)
    header = " ".join([*(f"{instant:.6f}" for instant in times), str(int(entry.forced))])
    return f"{header}\n{key}\n".encode() + entry.body


def asker() -> str:
    """Name the calling process so that a later process of the same id differs; "" if unknown."""
    parent = os.getppid()
    try:
        descriptor = os.open(f"/proc/{parent}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
        # Field 22 of proc(5)'s stat is the start time; the command's name before the closing
        # parenthesis, fields 1 and 2, may itself contain spaces and parentheses.
        return f"{parent}:{fields[19].decode('ascii')}"
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def is_rejected(directory: int, key: str, entry: Entry, now: float) -> bool:
    """Say whether this asker was given ``entry`` before, and note that it is given it now.

    An entry that was itself fetched because of a rejection counts as rejected again only after
    FORCED_PAUSE: a server that refuses every token must not turn each request into a fetch.
    """
    who = asker()
    if not who:
        return False
    line = f"{who} {entry.generation}\n".encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name_of(key) + _SEEN_SUFFIX, flags, 0o600, dir_fd=directory)
    except OSError:
        return False
    try:
        if not _is_private(os.fstat(descriptor), 0o100000):
            return False
        seen = os.read(descriptor, _SEEN_LIMIT)
        if line in seen.splitlines(keepends=True):
            return not (entry.forced and now - entry.fetched < FORCED_PAUSE)
        if len(seen) + len(line) > _SEEN_LIMIT:
            # Rejections follow at once, so only the latest askers matter.
            os.ftruncate(descriptor, 0)
        os.write(descriptor, line)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def read_private(directory: int, name: str, limit: int) -> bytes | None:
    """Read a regular file that only its owner, us, can touch; None for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not _is_private(status, 0o100000) or status.st_size > limit:
            return None
        raw = os.read(descriptor, limit)
        return raw if len(raw) == status.st_size else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _parse(raw: bytes, key: str) -> Entry | None:
    header, _, rest = raw.partition(b"\n")
    stored_key, _, body = rest.partition(b"\n")
    if stored_key != key.encode() or not body:
        return None
    try:
        refresh, fetched, emitted, expires, forced = map(float, header.split(b" "))
    except ValueError:
        return None
    if not fetched <= refresh <= emitted <= expires:
        return None
    return Entry(body, times=(refresh, fetched, emitted, expires), forced=forced == 1)


def _parse_failure(raw: bytes, key: str, now: float) -> RememberedError | None:
    header, _, rest = raw.partition(b"\n")
    stored_key, _, message = rest.partition(b"\n")
    try:
        until, written, code = map(float, header.split(b" "))
    except ValueError:
        return None
    if code not in _FAILURE_CODES:
        return None
    if stored_key != key.encode() or not written <= now + 1.0 or not now < until:
        return None
    if until - written > LONGEST_HOLD + 1.0:
        return None
    text = message.decode("utf-8", "replace")
    return RememberedError(f"{text} (asked again in {until - now:.0f} s)", int(code))


def _is_private(status: os.stat_result, kind: int) -> bool:
    return (
        status.st_mode & 0o170000 == kind
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )


def _escape(text: str) -> str:
    return "".join(
        char if char in _SAFE else "".join(f"_{byte:02X}" for byte in char.encode())
        for char in text
    )


def _fnv1a(data: bytes) -> int:
    """64-bit FNV-1a: it shortens names, and is not what keeps identities apart."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest
