"""A watch as a stream of lines: what is there, what happens, bookmarks, and a clean end."""

import random
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

from e2e.world.documents import Document, encode
from e2e.world.events import Subscription, watch_line
from e2e.world.paging import number
from e2e.world.refusals import Cause, RefusalError, bad_request, status_object
from e2e.world.resources import Key
from e2e.world.selectors import Selection
from e2e.world.store import Store
from e2e.world.web import Response

LAST_BOOKMARK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long things take, in seconds, as real servers have them by default.

    A bookmark is sent every `bookmark`, and one more shortly before the end. A watch that names no
    `timeoutSeconds` ends after `watch` to twice that.
    """

    bookmark: float = 60.0
    watch: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a watch asks for; `since` None is everything there is; `seconds` is its time to live."""

    since: int | None
    seconds: float
    bookmarks: bool

    @classmethod
    def of(cls, query: Mapping[str, str], periods: Periods) -> "Wish":
        """Read the query of a watch; raises RefusalError (400, 422)."""
        for name in ("sendInitialEvents", "resourceVersionMatch"):
            if name in query:
                said = f"Forbidden: {name} is forbidden for watch without the feature WatchList"
                cause = Cause(reason="FieldValueForbidden", message=said, field=name)
                message = f'ListOptions.meta.k8s.io "" is invalid: {name}: {said}'
                raise RefusalError(422, "Invalid", message, causes=[cause])
        if query.get("continue"):
            raise bad_request("continue is forbidden for watch")
        seconds = number("timeoutSeconds", query.get("timeoutSeconds") or "0")
        since = number("resourceVersion", query.get("resourceVersion") or "0")
        return cls(
            since=since or None,
            seconds=seconds or periods.watch * random.uniform(1, 2),
            bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
        )


def watch(store: Store, scope: Key, selection: Selection, wish: Wish, periods: Periods) -> Response:
    """Return a watch as a stream of lines, until its time is over or it is ended.

    A version that is too old is told within the stream, by an ERROR event, as real servers do.
    """
    try:
        subscription = store.subscribe(scope, selection, wish.since)
    except RefusalError as error:
        return Response(stream=_last_words(error))
    lines = _lines(store, subscription, wish, periods)
    # Begun at once, so that to close it, or to forget it, is to unsubscribe.
    next(lines)
    return Response(stream=lines, leave=subscription.end)


def _last_words(error: RefusalError) -> Generator[bytes]:
    yield watch_line("ERROR", encode(status_object(error)))


def _lines(
    store: Store, subscription: Subscription, wish: Wish, periods: Periods
) -> Generator[bytes]:
    try:
        yield b""
        for patience in _patiences(wish, periods):
            yield from subscription.lines(patience)
            if subscription.has_ended:
                return
            version = store.progress(subscription)
            if version and wish.bookmarks:
                yield _bookmark(subscription.scope, version)
    finally:
        store.unsubscribe(subscription)


def _patiences(wish: Wish, periods: Periods) -> Iterator[float]:
    """Yield the stretches between bookmarks; the last bookmark comes just before the end."""
    began = time.monotonic()
    last = wish.seconds - min(LAST_BOOKMARK_SECONDS, wish.seconds / 10)
    while (elapsed := time.monotonic() - began) < last:
        yield min(periods.bookmark, last - elapsed)


def _bookmark(scope: Key, version: int) -> bytes:
    document: Document = {
        "kind": scope.resource.kind,
        "apiVersion": scope.resource.api_version,
        "metadata": {"resourceVersion": str(version)},
    }
    return watch_line("BOOKMARK", encode(document))
