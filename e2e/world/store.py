"""A small etcd: objects of any kind, growing resourceVersions, conflicts and watches."""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from e2e.world.documents import Document, section, text
from e2e.world.resources import BUILT_IN, DEFINITIONS, Resource, defined_by

HISTORY = 4096


class RefusalError(Exception):
    """A request the API server answers with a Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Where an object lives."""

    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        """The object as API servers call it in errors."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f'{self.resource.plural}{group} "{self.name}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change, as a watch reports it."""

    version: int
    kind: str
    key: Key
    object: Document


class Store:
    """Keeps objects, and the last `history` changes for those who watch.

    Every method may be called from any thread; documents are never shared.
    """

    def __init__(self, history: int = HISTORY) -> None:
        self._changed = threading.Condition()
        self._objects: dict[Key, Document] = {}
        self._events: deque[Event] = deque(maxlen=history)
        self._version = 100

    def kinds(self) -> tuple[Resource, ...]:
        """Return the built-in kinds and those that stored definitions add."""
        definitions, _ = self.select(Key(resource=DEFINITIONS))
        return BUILT_IN + tuple(kind for each in definitions for kind in defined_by(each))

    def get(self, key: Key) -> Document:
        """Return the object at `key`; raises RefusalError (404)."""
        with self._changed:
            return dict(self._find(key))

    def select(self, scope: Key) -> tuple[list[Document], int]:
        """Return the objects of a kind (in one namespace, if named) and the store's version."""
        with self._changed:
            found = [
                dict(obj)
                for key, obj in sorted(self._objects.items(), key=_order)
                if _within(key, scope)
            ]
            return found, self._version

    def create(self, key: Key, wanted: Document) -> Document:
        """Store a new object; raises RefusalError (409) where the name is taken."""
        with self._changed:
            if key in self._objects:
                raise RefusalError(409, "AlreadyExists", f"{key.label} already exists")
            metadata = section(wanted, "metadata") | {
                "name": key.name,
                "uid": str(uuid4()),
                "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "generation": 1,
            }
            if key.resource.namespaced:
                metadata["namespace"] = key.namespace
            body = dict(wanted)
            if key.resource.has_status:
                body.pop("status", None)
            return self._keep("ADDED", key, body, metadata)

    def replace(self, key: Key, wanted: Document, *, status_only: bool = False) -> Document:
        """Replace an object, or its status alone; raises RefusalError (404, 409, 422).

        A resourceVersion in `wanted` must be the present one. What the other endpoint owns stays.
        """
        with self._changed:
            present = self._find(key)
            _check_version(key, present, wanted)
            body = _body(key, present, wanted, status_only=status_only)
            metadata = _metadata(present, present if status_only else wanted)
            generation = metadata.get("generation")
            if body.get("spec") != present.get("spec") and isinstance(generation, int):
                metadata["generation"] = generation + 1
            return self._keep("MODIFIED", key, body, metadata)

    def delete(self, key: Key) -> Document:
        """Remove an object and return its last state; raises RefusalError (404)."""
        with self._changed:
            present = self._find(key)
            gone = self._keep("DELETED", key, present, section(present, "metadata"))
            del self._objects[key]
            return gone

    def watch(self, scope: Key, since: int, patience: float) -> Iterator[Event]:
        """Yield changes after version `since`, in order, until none came for `patience` seconds.

        Raises RefusalError (410) where changes since then are no longer known.
        """
        while True:
            with self._changed:
                if self._events.maxlen == len(self._events) and self._events[0].version > since + 1:
                    raise RefusalError(410, "Expired", f"too old resource version: {since}")
                if not self._changed.wait_for(partial(self._is_past, since), patience):
                    return
                fresh = [event for event in self._events if event.version > since]
                since = self._version
            yield from (event for event in fresh if _within(event.key, scope))

    def _is_past(self, version: int) -> bool:
        return self._version > version

    def _find(self, key: Key) -> Document:
        if key not in self._objects:
            raise RefusalError(404, "NotFound", f"{key.label} not found")
        return self._objects[key]

    def _keep(self, kind: str, key: Key, body: Document, metadata: Document) -> Document:
        self._version += 1
        kept = body | {
            "kind": key.resource.kind,
            "apiVersion": key.resource.api_version,
            "metadata": metadata | {"resourceVersion": str(self._version)},
        }
        self._objects[key] = kept
        self._events.append(Event(version=self._version, kind=kind, key=key, object=kept))
        self._changed.notify_all()
        return dict(kept)


def _body(key: Key, present: Document, wanted: Document, *, status_only: bool) -> Document:
    """Return what a PUT stores: each endpoint leaves the other's part as it is."""
    if status_only:
        return present | {"status": wanted.get("status")}
    if not key.resource.has_status:
        return dict(wanted)
    kept = {"status": present["status"]} if "status" in present else {}
    return {name: value for name, value in wanted.items() if name != "status"} | kept


def _metadata(present: Document, wanted: Document) -> Document:
    """Return the metadata a PUT stores: the server's own fields are not the client's to change."""
    old = section(present, "metadata")
    owned = ("name", "namespace", "uid", "creationTimestamp", "generation")
    return section(wanted, "metadata") | {name: old[name] for name in owned if name in old}


def _within(key: Key, scope: Key) -> bool:
    return key.resource == scope.resource and scope.namespace in ("", key.namespace)


def _order(item: tuple[Key, Document]) -> tuple[str, str]:
    return item[0].namespace, item[0].name


def _check_version(key: Key, present: Document, wanted: Document) -> None:
    told = text(wanted, "metadata", "resourceVersion")
    if not told and not key.resource.unconditional_update:
        raise RefusalError(
            422, "Invalid", f"{key.label} is invalid: metadata.resourceVersion: must be specified"
        )
    if told and told != text(present, "metadata", "resourceVersion"):
        raise RefusalError(
            409,
            "Conflict",
            f"Operation cannot be fulfilled on {key.label}: the object has been modified; "
            "please apply your changes to the latest version and try again",
        )
    uid = text(wanted, "metadata", "uid")
    if uid and uid != text(present, "metadata", "uid"):
        raise RefusalError(409, "Conflict", f"{key.label}: the UID in the precondition differs")
