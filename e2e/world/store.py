"""A small etcd: objects of any kind under growing versions, snapshots of the past, watches.

It knows no rule of the Kubernetes API; those are in `registry`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from e2e.world.documents import Document, section
from e2e.world.events import Event, Exchange, Subscription
from e2e.world.persistence import Journal
from e2e.world.refusals import RefusalError, expired
from e2e.world.resources import Key, Resource
from e2e.world.selectors import Selection

HISTORY = 4096
FIRST_VERSION = 100

Decide: TypeAlias = Callable[[Document | None], Document | None]


class Store:
    """Keeps objects, and the last `history` changes for those who watch or read page by page.

    Every method may be called from any thread. Documents that it hands out are the stored ones:
    they must not be changed. With a `journal` it begins with the objects found there.
    """

    def __init__(self, history: int = HISTORY, journal: Journal | None = None) -> None:
        self._lock = threading.RLock()
        self._history = history
        self._journal = journal
        self._events: deque[Event] = deque()
        self._exchange = Exchange()
        self._objects, version = journal.load() if journal else ({}, 0)
        self._version = version or FIRST_VERSION
        self._oldest = self._version

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads from reading and writing meanwhile."""
        with self._lock:
            yield

    @property
    def version(self) -> int:
        """The version of the last change."""
        with self._lock:
            return self._version

    def find(self, key: Key) -> Document | None:
        """Return the object at `key`, or None."""
        with self._lock:
            return self._objects.get(key)

    def read(self, scope: Key, at: int | None = None) -> tuple[list[tuple[Key, Document]], int]:
        """Return the objects of a collection, ordered by name, and the version they are of.

        `at` asks for a version of the past; raises RefusalError (410) where it is forgotten.
        """
        with self._lock:
            objects = self._objects if at is None else self._as_of(at)
            found = [(key, each) for key, each in objects.items() if scope.holds(key)]
            found.sort(key=lambda item: (item[0].namespace, item[0].name))
            return found, self._version if at is None else at

    def check_reached(self, version: int) -> None:
        """Raise RefusalError (504) for a version that is yet to come."""
        with self._lock:
            if version > self._version:
                raise _too_new(version, self._version)

    def write(self, key: Key, decide: Decide) -> Document:
        """Store what `decide` makes of the present object, and return it; None deletes it.

        The object that `decide` was given, itself, means no change. What it raises is passed on,
        and nothing is stored. Of a deleted object the last state is returned.
        """
        with self._lock:
            before = self._objects.get(key)
            after = decide(before)
            if after is before:
                return before or {}
            self._version += 1
            if after is None:
                del self._objects[key]
            else:
                metadata = section(after, "metadata") | {"resourceVersion": str(self._version)}
                after = after | {"metadata": metadata}
                self._objects[key] = after
            self._record(Event(self._version, key, before, after))
            return after or before or {}

    def subscribe(self, scope: Key, selection: Selection, since: int | None) -> Subscription:
        """Return a subscription to the changes after version `since`.

        None: first every object there is, as if it were just made. Raises RefusalError (410) where
        changes after `since` are forgotten. End it with `unsubscribe`.
        """
        subscription = Subscription(scope, selection)
        with self._lock:
            for event in self._backlog(scope, since):
                subscription.offer(event)
            self._exchange.join(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop offering changes to a subscription."""
        with self._lock:
            self._exchange.leave(subscription)

    def progress(self, subscription: Subscription) -> int:
        """Return the version up to which a watcher has seen everything, 0 where changes wait."""
        with self._lock:
            return self._version if subscription.is_idle else 0

    def watchers(self) -> int:
        """Return how many subscriptions there are."""
        with self._lock:
            return len(self._exchange.all())

    def end_watches(self, resource: Resource | None = None) -> None:
        """End every watch, or those of one kind, as when the server stops serving it."""
        with self._lock:
            self._exchange.end(resource)

    def forget(self) -> None:
        """Drop the history, as compaction does: older versions are expired from now on."""
        with self._lock:
            self._events.clear()
            self._oldest = self._version

    def close(self) -> None:
        """End every watch and the journal."""
        self.end_watches()
        if self._journal:
            self._journal.close()

    def _record(self, event: Event) -> None:
        if self._journal:
            self._journal.note(event.version, event.key, event.after)
        self._events.append(event)
        if len(self._events) > self._history:
            self._oldest = self._events.popleft().version
        self._exchange.publish(event)

    def _backlog(self, scope: Key, since: int | None) -> list[Event]:
        if since is None:
            return [Event(self._version, key, None, each) for key, each in self.read(scope)[0]]
        if since < self._oldest:
            raise expired(f"too old resource version: {since} ({self._oldest})")
        return [event for event in self._events if event.version > since]

    def _as_of(self, version: int) -> dict[Key, Document]:
        if version < self._oldest:
            raise expired(f"The resourceVersion for the provided list is too old: {version}")
        self.check_reached(version)
        objects = dict(self._objects)
        for event in reversed(self._events):
            if event.version <= version:
                break
            if event.before is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.before
        return objects


def _too_new(version: int, present: int) -> RefusalError:
    message = f"Too large resource version: {version}, current: {present}"
    refusal = RefusalError(504, "Timeout", message)
    refusal.retry_after = 1
    return refusal
