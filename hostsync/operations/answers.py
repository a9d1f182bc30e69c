"""What the Kubernetes API answers, made sense of: objects, events of a watch, refusals. Pure.

Facts it rests on:
- httpx splits lines at U+2028 and its kin, which JSON holds raw: events are split at newlines only.
- A watch's error comes as an event within an answer of 200.
- lightkube reads a refusal only where its type is exactly `application/json`, and fails over one
  that has no type; a balancer's answers are like that, so refusals are read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import httpx2
import msgspec

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Change, Seen
from hostsync.operations.operation import GROUP, PLURAL, Operation, UnreadableError
from hostsync.redaction import plain, redact

LINE_LIMIT = 4 << 20


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}
    resourceVersion: str = ""  # noqa: N815 - the API's word


class Labelled(msgspec.Struct):
    """Any object, as far as its labels and its version."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


def readable(documents: Iterable[object]) -> Iterator[Operation]:
    """Those that can be read: one odd object must not keep the others from being seen."""
    for document in documents:
        try:
            yield Operation.parse(document)
        except UnreadableError:
            continue


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The events of a watch, as they arrive; raises ValueError for one without an end."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from filter(None, whole)
        if len(rest) > LINE_LIMIT:
            raise ValueError(f"an event of more than {LINE_LIMIT} bytes")


def seen(line: bytes) -> Seen:
    """One event of a watch; raises ClusterError for one that tells of an error."""
    event = msgspec.json.decode(line, type=_Event)
    if event.type == "ERROR":
        raise _told(msgspec.json.decode(event.object, type=_Status))
    version = msgspec.json.decode(event.object, type=Labelled).metadata.resourceVersion
    if event.type == "BOOKMARK":
        return Seen(change=Change.MARK, version=version)
    try:
        operation = Operation.parse(msgspec.json.decode(event.object))
    except UnreadableError:
        return Seen(change=Change.MARK, version=version)
    change = Change.GONE if event.type == "DELETED" else Change.PUT
    return Seen(change=change, version=version, operation=operation)


def refusal(response: httpx2.Response) -> ClusterError:
    """What was refused: by a server's Status, or by the bare code of whatever is in between."""
    status = _Status()
    with suppress(msgspec.DecodeError):
        status = msgspec.json.decode(response.content, type=_Status)
    status.code = response.status_code
    wait = response.headers.get("Retry-After", "")
    return _told(status, float(wait) if wait.isdecimal() and len(wait) < 6 else 0.0)


_TRANSIENT = (408, 429, 500, 502, 503, 504)
_CAUSES = {
    401: ClusterCause.DENIED,
    403: ClusterCause.DENIED,
    409: ClusterCause.CONFLICT,
    410: ClusterCause.EXPIRED,
} | dict.fromkeys(_TRANSIENT, ClusterCause.UNREACHABLE)
_REMEDIES = {
    ClusterCause.DENIED: "check this host's credential, and that deploy/rbac.yaml is applied",
    ClusterCause.NO_KIND: "apply deploy/crd.yaml",
}


def _told(status: _Status, wait: float = 0.0) -> ClusterError:
    """A refusal by its code and, where one code means two things, by the server's words."""
    said = plain(redact(status.message))[:400] or f"status {status.code}"
    cause = _CAUSES.get(status.code, ClusterCause.REJECTED)
    if status.code == 404:
        # Only a path that no kind answers is refused without naming an object.
        is_object = f'{PLURAL}.{GROUP} "' in status.message
        cause = ClusterCause.GONE if is_object else ClusterCause.NO_KIND
    elif status.code == 400 and "field label not supported" in status.message:
        cause = ClusterCause.NO_FIELD
    brief = f"the Kubernetes API refuses: {said}"
    return ClusterError(cause, brief, remedy=_REMEDIES.get(cause, ""), wait=wait)


def why(error: BaseException) -> str:
    """What a foreign exception says, fit to be shown."""
    return plain(redact(str(error)))[:400] or type(error).__name__
