"""Getting a credential: from the cache, from the one process that fetches, or as that process."""

from credential_shim import cache
from credential_shim.cache import Lock, Store
from credential_shim.clock import Deadline
from credential_shim.entries import Entry
from credential_shim.errors import ShimError, UnreachableError

SPARE_BUDGET = 3.0
"""Seconds spent on a new token while the old one still works: nothing is urgent then."""
SPARE_HOLD = 30.0
"""Seconds for which a failure is repeated while the old token still works."""
FETCH_RESERVE = 2.5
"""Seconds kept for an own fetch when another process holds the lock for too long."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from credential_shim.ports import Clock, Source


class Issuer:
    """Obtains credentials of one identity."""

    def __init__(
        self, source: "Source", store: Store, clock: "Clock", say: "Callable[[str], None]"
    ) -> None:
        self._source = source
        self._store = store
        self._clock = clock
        self._say = say

    def obtain(self, api_version: str, deadline: Deadline, notes: "Iterable[str]" = ()) -> bytes:
        """Return the bytes of an ExecCredential whose expiry is in the future.

        A fresh entry is served from the cache. A stale one whose token still works is renewed,
        and served with a warning when that fails. Among many processes one fetches. A failure is
        remembered, so that the storm of retries that follows costs the endpoint nothing.
        ``notes`` are said when a token is fetched. Raises ShimError.
        """
        now = self._clock.now()
        held = self._store.load()
        if held is not None and not held.is_usable(now):
            held = None
        rejected = held is not None and self._store.is_rejected(held, now)
        if held is not None and held.is_fresh(now) and not rejected:
            return held.body
        fetch = _Fetch(api_version, deadline, held, tuple(notes), rejected=rejected)
        try:
            entry = self._fetch_once(fetch)
        except ShimError as error:
            return self._spare(held, api_version, error)
        self._store.is_rejected(entry, self._clock.now())
        return entry.body

    def _spare(self, held: Entry | None, api_version: str, error: ShimError) -> bytes:
        from credential_shim import credential

        body = held and credential.body_for_outage(held, api_version, self._clock.now())
        if not held or not body:
            raise error
        if not isinstance(error, _BusyError):
            until = credential.rfc3339(held.expires)
            self._say(f"{error.message}; serving the cached credential, valid until {until}")
        return body

    def _fetch_once(self, fetch: "_Fetch") -> Entry:
        self._raise_remembered()
        lock = self._store.lock(
            self._clock, fetch.lock_seconds(), lambda: self._news(fetch) is not None
        )
        try:
            # Whoever held the lock before may have fetched, or failed, in the meantime.
            newer = self._news(fetch)
            if newer is not None:
                return newer
            self._raise_remembered()
            if fetch.held is not None and lock is Lock.BUSY:
                raise _BusyError("another process is fetching")
            return self._fetch(fetch)
        finally:
            self._store.unlock()

    def _news(self, fetch: "_Fetch") -> Entry | None:
        """What another process fetched in the meantime."""
        newer = self._store.load()
        is_news = newer is not None and fetch.is_news(newer)
        return (
            newer if newer is not None and is_news and newer.is_fresh(self._clock.now()) else None
        )

    def _raise_remembered(self) -> None:
        remembered = self._store.failure(self._clock.now())
        if remembered is not None:
            raise remembered

    def _fetch(self, fetch: "_Fetch") -> Entry:
        from credential_shim import credential

        for note in fetch.notes:
            self._say(note)
        try:
            token = self._source.fetch(fetch.seconds())
            entry = credential.build_entry(
                token, fetch.api_version, self._clock.now(), forced=fetch.rejected
            )
        except ShimError as error:
            default = cache.HOLD_SECONDS if fetch.held is None else SPARE_HOLD
            hold = default if error.hold is None else max(error.hold, cache.HOLD_SECONDS)
            self._store.remember(error, self._clock.now(), hold)
            raise
        for warning in token.warnings:
            self._say(warning)
        self._store.save(entry)
        return entry


class _BusyError(UnreachableError):
    """Another process fetches, and there is a usable credential to serve meanwhile."""


class _Fetch:
    """What one fetch is for."""

    __slots__ = ("_deadline", "api_version", "held", "notes", "rejected")

    def __init__(
        self,
        api_version: str,
        deadline: Deadline,
        held: Entry | None,
        notes: tuple[str, ...],
        *,
        rejected: bool,
    ) -> None:
        self.api_version = api_version
        self._deadline = deadline
        self.held = held
        self.notes = notes
        self.rejected = rejected

    def is_news(self, entry: Entry) -> bool:
        return self.held is None or entry.generation != self.held.generation

    def lock_seconds(self) -> float:
        # A rejected credential is worth waiting for a better one; a merely ageing one is not.
        if self.held is not None and not self.rejected:
            return 0.0
        return max(0.0, self._deadline.remaining() - FETCH_RESERVE)

    def seconds(self) -> float:
        remaining = self._deadline.remaining()
        return remaining if self.held is None else min(remaining, SPARE_BUDGET)
