"""Changes, and those who wait for them: each watcher is woken by what it selects, not by more.

A watcher that requires a certain value of one field (one machine's operations) is found by an index
on that field, so a change costs as much as it has takers, however many others wait.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TypeAlias

from e2e.world.documents import Document, encode, section
from e2e.world.resources import Key, Resource
from e2e.world.selectors import Selection, field_of

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Event:
    """One change: the object before (None: it was made) and after (None: it is gone)."""

    __slots__ = ("_raw", "after", "before", "key", "version")

    def __init__(
        self, version: int, key: Key, before: Document | None, after: Document | None
    ) -> None:
        self.version, self.key, self.before, self.after = version, key, before, after
        self._raw = b""

    def seen_through(self, selection: Selection) -> str:
        """Return what the change is to one who selects: "" for nothing.

        An object that no longer fits is gone for him, one that begins to fit is new.
        """
        was = self.before is not None and selection.takes(self.before)
        now = self.after is not None and selection.takes(self.after)
        match was, now:
            case True, True:
                return MODIFIED
            case True, False:
                return DELETED
            case False, True:
                return ADDED
            case _:
                return ""

    def line(self, kind: str) -> bytes:
        """Return the event as a watch sends it; the object is encoded once for all takers."""
        if kind == DELETED and self.before is not None:
            return watch_line(kind, encode(_at_version(self.before, self.version)))
        self._raw = self._raw or encode(self.after or {})
        return watch_line(kind, self._raw)


def watch_line(kind: str, encoded: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), encoded)


class Subscription:
    """A watcher's queue of changes."""

    def __init__(self, scope: Key, selection: Selection) -> None:
        self.scope, self.selection = scope, selection
        self.has_ended = False
        self._queue: SimpleQueue[tuple[str, Event] | None] = SimpleQueue()

    def offer(self, event: Event) -> None:
        """Queue the change if it is one to this watcher; called with the store locked."""
        if self.scope.holds(event.key):
            kind = event.seen_through(self.selection)
            if kind:
                self._queue.put((kind, event))

    def end(self) -> None:
        """Have the watcher stop once it has taken what is queued."""
        self._queue.put(None)

    def lines(self, seconds: float) -> Iterator[bytes]:
        """Yield the changes as lines of a watch until `seconds` are over or it has ended."""
        deadline = time.monotonic() + seconds
        while not self.has_ended:
            try:
                taken = self._queue.get(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                return
            if taken is None:
                self.has_ended = True
            else:
                kind, event = taken
                yield event.line(kind)

    @property
    def is_idle(self) -> bool:
        """Whether everything was taken; certain only while the store is locked."""
        return self._queue.empty()


Lane: TypeAlias = dict[str, set[Subscription]]


class Exchange:
    """All subscriptions, by kind and by what they require; the store's lock guards it."""

    def __init__(self) -> None:
        self._every: defaultdict[Resource, set[Subscription]] = defaultdict(set)
        # By kind, then by the path of a field, then by its value.
        self._lanes: defaultdict[Resource, dict[str, Lane]] = defaultdict(dict)

    def join(self, subscription: Subscription) -> None:
        """Have the subscription get what happens from now on."""
        self._place_of(subscription).add(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Forget the subscription."""
        self._place_of(subscription).discard(subscription)
        pivot = subscription.selection.pivot
        if pivot:
            lane = self._lanes[subscription.scope.resource][pivot.path]
            if not lane[pivot.value]:
                del lane[pivot.value]

    def publish(self, event: Event) -> None:
        """Offer a change to those who may want it."""
        for subscription in self._takers(event):
            subscription.offer(event)

    def end(self, resource: Resource | None = None) -> None:
        """End the subscriptions of a kind, or all."""
        for subscription in self.all():
            if resource in (None, subscription.scope.resource):
                subscription.end()

    def all(self) -> tuple[Subscription, ...]:
        """Return every subscription."""
        found = [each for many in self._every.values() for each in many]
        for lanes in self._lanes.values():
            found += [each for lane in lanes.values() for many in lane.values() for each in many]
        return tuple(found)

    def _place_of(self, subscription: Subscription) -> set[Subscription]:
        pivot = subscription.selection.pivot
        if pivot is None:
            return self._every[subscription.scope.resource]
        lanes = self._lanes[subscription.scope.resource]
        return lanes.setdefault(pivot.path, {}).setdefault(pivot.value, set())

    def _takers(self, event: Event) -> set[Subscription]:
        found = set(self._every[event.key.resource])
        for path, lane in self._lanes[event.key.resource].items():
            for document in (event.before, event.after):
                if document is not None:
                    found |= lane.get(field_of(document, path), set())
        return found


def _at_version(document: Document, version: int) -> Document:
    metadata = section(document, "metadata") | {"resourceVersion": str(version)}
    return document | {"metadata": metadata}
