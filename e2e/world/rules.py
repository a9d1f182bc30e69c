"""What an API server makes of an object that a client sends, as pure decisions.

Each returns what is to be stored, or raises RefusalError. The server's own fields are not the
client's to change; with a status subresource each endpoint leaves the other's part alone.
"""

import re
import secrets
from dataclasses import dataclass
from uuid import uuid4

from e2e.world.apply import Act, applied, updated
from e2e.world.definitions import established, faults_of
from e2e.world.documents import Document, section, text
from e2e.world.ownership import APPLY, UPDATE, Owner
from e2e.world.refusals import Cause, RefusalError, bad_request, invalid
from e2e.world.resources import DEFINITIONS, Key, Resource
from e2e.world.schema import faults, prune, unknown_fields

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_OWNED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who writes (`manager`), through which subresource ("" or "status"), at what time (RFC 3339).

    `whole` says that the object was sent as a whole, by PUT, and so must name its version; `strict`
    that fields its kind does not know are to be refused, not dropped.
    """

    manager: str = "unknown"
    subresource: str = ""
    now: str
    whole: bool = False
    strict: bool = False

    def act(self, kind: Resource, operation: str = UPDATE) -> Act:
        """Return the write as ownership sees it."""
        owner = Owner(
            name=self.manager,
            operation=operation,
            api_version=kind.api_version,
            subresource=self.subresource,
        )
        alone = frozenset(["metadata", "spec"] if self.subresource else ["status"])
        return Act(owner=owner, now=self.now, left_alone=alone if kind.has_status else frozenset())


def name_of(wanted: Document) -> str:
    """Return the name a new object asks for, completed where it asks for a generated one."""
    name, start = text(wanted, "metadata", "name"), text(wanted, "metadata", "generateName")
    if not name and start:
        return start + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
    return name


def created(key: Key, wanted: Document, origin: Origin) -> Document:
    """Return a new object."""
    _check_kind(key, wanted)
    if not _NAME.fullmatch(key.name) or len(key.name) > 253:
        said = "Required value: name or generateName is required"
        if key.name:
            said = f'Invalid value: "{key.name}": a lowercase RFC 1123 subdomain is required'
        reason = "FieldValueInvalid" if key.name else "FieldValueRequired"
        fault = Cause(reason=reason, message=said, field="metadata.name")
        raise invalid(key.resource.full_kind, key.about, [fault])
    if text(wanted, "metadata", "resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise RefusalError(500, "InternalError", message)
    metadata = section(wanted, "metadata") | {
        "name": key.name,
        "uid": str(uuid4()),
        "creationTimestamp": origin.now,
    }
    metadata.pop("managedFields", None)
    if key.resource.is_custom or key.resource == DEFINITIONS:
        metadata["generation"] = 1
    if key.resource.namespaced:
        metadata["namespace"] = key.namespace
    left = {name: value for name, value in wanted.items() if name != "status"}
    body = left if key.resource.has_status else wanted
    document = _accepted(key, body | {"metadata": metadata}, origin)
    return _owned({}, document, key, origin)


def replaced(key: Key, present: Document, wanted: Document, origin: Origin) -> Document:
    """Return the object after a PUT or a patch; `present` itself where nothing changes."""
    document = _changed(key, present, wanted, origin)
    owned = _owned(present, document, key, origin)
    return present if owned == present else owned


def configured(
    key: Key, present: Document | None, config: Document, origin: Origin, *, force: bool
) -> Document:
    """Return the object after a server-side apply; `present` itself where nothing changes."""
    _check_kind(key, config)
    if section(config, "metadata").get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    named = text(config, "metadata", "name")
    if named not in ("", key.name):
        raise _other_name(key, named)
    kind = key.resource
    live: Document = {"metadata": {"name": key.name}} if present is None else present
    stray = next(unknown_fields(config, kind.schema), "") if kind.schema else ""
    if stray:
        told = f"failed to create typed patch object: .{stray}: field not declared in schema"
        raise RefusalError(500, "InternalError", told)
    document = applied(live, config, kind.schema, origin.act(kind, APPLY), force=force)
    if present is None:
        uid = text(config, "metadata", "uid")
        if uid:
            said = f"uid mismatch: the provided object specified uid {uid}, and no existing object"
            raise conflict(key, f"{said} was found")
        owners = section(document, "metadata").get("managedFields", [])
        fresh = created(key, document, origin)
        return fresh | {"metadata": section(fresh, "metadata") | {"managedFields": owners}}
    changed = _changed(key, present, document, origin)
    owners = section(document, "metadata").get("managedFields", [])
    changed = changed | {"metadata": section(changed, "metadata") | {"managedFields": owners}}
    return present if changed == present else changed


def check_preconditions(key: Key, present: Document, options: Document) -> None:
    """Raise RefusalError (409) where DeleteOptions ask for another object or version."""
    asked = section(options, "preconditions")
    for name, called in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, actual = text(asked, name), text(present, "metadata", name)
        if wanted and wanted != actual:
            said = f"{called} in precondition: {wanted}, {called} in object meta: {actual}"
            raise conflict(key, f"Precondition failed: {said}")


def doomed(present: Document, now: str) -> Document | None:
    """Return what a deletion leaves: None, or the object marked while finalizers hold it."""
    metadata = section(present, "metadata")
    if not metadata.get("finalizers"):
        return None
    if "deletionTimestamp" in metadata:
        return present
    marks: Document = {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
    generation = metadata.get("generation")
    if isinstance(generation, int):
        marks["generation"] = generation + 1
    return present | {"metadata": metadata | marks}


def is_released(document: Document) -> bool:
    """Whether the object was waiting for its finalizers and has none left."""
    metadata = section(document, "metadata")
    return "deletionTimestamp" in metadata and not metadata.get("finalizers")


def conflict(key: Key, why: str) -> RefusalError:
    """Return a 409 about the object."""
    message = f"Operation cannot be fulfilled on {key.label}: {why}"
    return RefusalError(409, "Conflict", message, about=key.about)


def _changed(key: Key, present: Document, wanted: Document, origin: Origin) -> Document:
    _check_kind(key, wanted)
    _check_identity(key, present, wanted, origin)
    body = _body(key.resource, present, wanted, origin)
    metadata = _metadata(present, present if origin.subresource else wanted)
    generation = metadata.get("generation")
    if isinstance(generation, int) and _content(body) != _content(present):
        metadata["generation"] = generation + 1
    return _accepted(key, body | {"metadata": metadata}, origin)


def _check_kind(key: Key, wanted: Document) -> None:
    kind = key.resource
    for name, expected in (("kind", kind.kind), ("apiVersion", kind.api_version)):
        told = text(wanted, name)
        if not told and kind.is_custom:
            raise bad_request(f"Object '{name}' is missing in the body")
        if name == "kind" and kind.is_custom and told != expected:
            said = f'Invalid value: "{told}": must be {expected}'
            fault = Cause(reason="FieldValueInvalid", message=said, field="kind")
            raise invalid(kind.full_kind, key.about, [fault])
        if told not in ("", expected):
            raise bad_request(f"the {name} in the data ({told}) is not the expected ({expected})")
    space = text(wanted, "metadata", "namespace")
    if space not in ("", key.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_identity(key: Key, present: Document, wanted: Document, origin: Origin) -> None:
    named = text(wanted, "metadata", "name")
    if named not in ("", key.name):
        raise _other_name(key, named)
    uid, actual = text(wanted, "metadata", "uid"), text(present, "metadata", "uid")
    if uid not in ("", actual) and origin.whole:
        said = f"UID in precondition: {uid}, UID in object meta: {actual}"
        raise conflict(key, f"Precondition failed: {said}")
    # A patch of the status takes its metadata from the present object before it is looked at.
    if uid not in ("", actual) and not origin.subresource:
        said = f'Invalid value: "{uid}": field is immutable'
        fault = Cause(reason="FieldValueInvalid", message=said, field="metadata.uid")
        raise invalid(key.resource.full_kind, key.about, [fault])
    told = text(wanted, "metadata", "resourceVersion")
    if not told and origin.whole and not key.resource.unconditional_update:
        fault = Cause(
            reason="FieldValueInvalid",
            message="Invalid value: 0: must be specified for an update",
            field="metadata.resourceVersion",
        )
        raise invalid(key.resource.full_kind, key.about, [fault])
    if told and told != text(present, "metadata", "resourceVersion"):
        raise conflict(
            key,
            "the object has been modified; "
            "please apply your changes to the latest version and try again",
        )


def _other_name(key: Key, named: str) -> RefusalError:
    return bad_request(
        f"the name of the object ({named}) does not match the name on the URL ({key.name})"
    )


def _body(kind: Resource, present: Document, wanted: Document, origin: Origin) -> Document:
    """Return what is stored: each endpoint leaves the other's part as it is."""
    if not kind.has_status:
        return dict(wanted)
    ours, theirs = (wanted, present) if origin.subresource else (present, wanted)
    status = {"status": ours["status"]} if "status" in ours else {}
    return {name: value for name, value in theirs.items() if name != "status"} | status


def _metadata(present: Document, wanted: Document) -> Document:
    """Return the metadata stored; managedFields are the server's to keep."""
    old = section(present, "metadata")
    kept = (*_SERVER_OWNED, "managedFields")
    theirs = {name: each for name, each in section(wanted, "metadata").items() if name not in kept}
    return theirs | {name: old[name] for name in kept if name in old}


def _content(document: Document) -> Document:
    """Return what a generation counts."""
    apart = ("metadata", "status", "apiVersion", "kind")
    return {name: value for name, value in document.items() if name not in apart}


def _accepted(key: Key, document: Document, origin: Origin) -> Document:
    """Return the object as its kind's schema leaves it; raises RefusalError (422)."""
    kind = key.resource
    stray = tuple(unknown_fields(document, kind.schema)) if origin.strict and kind.schema else ()
    if stray:
        told = ", ".join(f'unknown field "{each}"' for each in stray)
        cannot = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
        raise bad_request(f"{cannot}: strict decoding error: {told}")
    document = _pruned(kind, document)
    wrong = faults(document, kind.schema) if kind.schema else ()
    if kind == DEFINITIONS:
        wrong = faults_of(document)
        if not origin.subresource:
            document = document | {"status": established(document, origin.now)}
    if wrong:
        raise invalid(kind.full_kind, key.about, wrong)
    return document


def _pruned(kind: Resource, document: Document) -> Document:
    named: Document = {"apiVersion": kind.api_version, "kind": kind.kind}
    return (prune(document, kind.schema) if kind.schema else document) | named


def _owned(before: Document, after: Document, key: Key, origin: Origin) -> Document:
    kind = key.resource
    owners = updated(before, after, kind.schema, origin.act(kind))
    metadata = {
        name: each for name, each in section(after, "metadata").items() if name != "managedFields"
    }
    return after | {"metadata": metadata | ({"managedFields": owners} if owners else {})}
