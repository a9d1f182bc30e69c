"""Objects under the rules of the Kubernetes API, over a store; tests arrange and assert with it."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import TypeAlias

from e2e.world.definitions import kinds_of
from e2e.world.documents import Document, text
from e2e.world.refusals import RefusalError, bad_request
from e2e.world.resources import BUILT_IN, DEFINITIONS, NAMESPACES, Key, Resource
from e2e.world.rules import (
    Origin,
    check_preconditions,
    configured,
    created,
    doomed,
    is_released,
    name_of,
    replaced,
)
from e2e.world.selectors import Selection
from e2e.world.store import Store

Change: TypeAlias = Callable[[Document], Document]

GENERATED_NAME_TRIES = 8


def now_text() -> str:
    """Return the present time as API objects carry it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Registry:
    """Creates, changes and removes objects; each verb is one transaction of the store.

    Documents given and returned are never shared with the store.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self._kinds: dict[tuple[str, str, str], Resource] = {}
        self._learn()

    def kinds(self) -> tuple[Resource, ...]:
        """Return the built-in kinds and those that definitions add."""
        return tuple(self._kinds.values())

    def kind(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the kind served under this name, or None."""
        return self._kinds.get((group, version, plural))

    def get(self, key: Key) -> Document:
        """Return an object; raises RefusalError (404)."""
        return deepcopy(self._present(key))

    def create(self, key: Key, wanted: Document, origin: Origin | None = None) -> Document:
        """Store a new object; raises RefusalError (404 for its namespace, 409, 422).

        Without a name in `key` it is taken from the object, generated where that asks for it.
        """
        for _ in range(GENERATED_NAME_TRIES):
            place = key if key.name else _named(key, name_of(wanted))
            try:
                return self._create(place, wanted, origin or Origin(now=now_text()))
            except RefusalError as error:
                if error.reason != "AlreadyExists" or text(wanted, "metadata", "name") or key.name:
                    raise
        raise RefusalError(409, "AlreadyExists", f"no free name for {key.label}")

    def replace(self, key: Key, wanted: Document, origin: Origin | None = None) -> Document:
        """Replace an object, or its status alone; raises RefusalError (404, 409, 422)."""
        return self.change(key, lambda _: wanted, origin or Origin(now=now_text(), whole=True))

    def change(self, key: Key, change: Change, origin: Origin | None = None) -> Document:
        """Replace an object by what `change` makes of it; raises RefusalError (404, 409, 422)."""
        act = origin or Origin(now=now_text())

        def decide(present: Document | None) -> Document | None:
            held = _held(key, present)
            after = replaced(key, held, deepcopy(change(deepcopy(held))), act)
            return None if is_released(after) else after

        return self._write(key, decide)

    def apply(
        self, key: Key, config: Document, origin: Origin, *, force: bool = False
    ) -> tuple[Document, bool]:
        """Apply a configuration; return the object and whether it was made by this.

        Raises RefusalError (404 for the status of an object that is not there, 409, 422).
        """
        fresh = False

        def decide(present: Document | None) -> Document | None:
            nonlocal fresh
            fresh = present is None
            if origin.subresource:
                _held(key, present)
            if fresh and not text(config, "metadata", "name"):
                raise bad_request(
                    "the name of the object was undeterminable: name must be provided"
                )
            after = configured(key, present, deepcopy(config), origin, force=force)
            return None if is_released(after) else after

        with self.store.exclusive():
            self._check_namespace(key)
            return self._write(key, decide), fresh

    def delete(self, key: Key, options: Document | None = None) -> tuple[Document, bool]:
        """Remove an object; return its last state and whether it is gone.

        It stays, marked, while it has finalizers. Raises RefusalError (404, 409).
        """

        def decide(present: Document | None) -> Document | None:
            held = _held(key, present)
            check_preconditions(key, held, options or {})
            return doomed(held, now_text())

        with self.store.exclusive():
            served = kinds_of(self._present(key)) if key.resource == DEFINITIONS else ()
            last = self._write(key, decide)
            gone = self.store.find(key) is None
            for kind in served if gone else ():
                self._withdraw(kind)
            return last, gone

    def delete_all(self, scope: Key, selection: Selection) -> list[Document]:
        """Remove the selected objects of a collection; return their last states."""
        with self.store.exclusive():
            found, _ = self.store.read(scope)
            return [self.delete(key)[0] for key, each in found if selection.takes(each)]

    def _create(self, key: Key, wanted: Document, origin: Origin) -> Document:
        def decide(present: Document | None) -> Document:
            if present is not None:
                message = f"{key.label} already exists"
                raise RefusalError(409, "AlreadyExists", message, about=key.about)
            return created(key, deepcopy(wanted), origin)

        with self.store.exclusive():
            self._check_namespace(key)
            return self._write(key, decide)

    def _write(self, key: Key, decide: Callable[[Document | None], Document | None]) -> Document:
        with self.store.exclusive():
            written = self.store.write(key, decide)
            if key.resource == DEFINITIONS:
                self._learn()
            return deepcopy(written)

    def _present(self, key: Key) -> Document:
        return _held(key, self.store.find(key))

    def _check_namespace(self, key: Key) -> None:
        if key.resource.namespaced:
            self._present(Key(resource=NAMESPACES, name=key.namespace))

    def _withdraw(self, kind: Resource) -> None:
        for key, _ in self.store.read(Key(resource=kind))[0]:
            self.store.write(key, lambda _: None)
        self.store.end_watches(kind)

    def _learn(self) -> None:
        definitions, _ = self.store.read(Key(resource=DEFINITIONS))
        added = [kind for _, each in definitions for kind in kinds_of(each)]
        self._kinds = {
            (kind.group, kind.version, kind.plural): kind for kind in (*BUILT_IN, *added)
        }


def _named(key: Key, name: str) -> Key:
    return Key(resource=key.resource, namespace=key.namespace, name=name)


def _held(key: Key, present: Document | None) -> Document:
    if present is None:
        raise RefusalError(404, "NotFound", f"{key.label} not found", about=key.about)
    return present
