"""Lists in pages: opaque tokens that bind the later pages to the first one's version."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.world.documents import Document, Json, NotADocumentError, decode, encode, text
from e2e.world.refusals import RefusalError, bad_request, expired
from e2e.world.resources import Key
from e2e.world.selectors import Selection
from e2e.world.store import Store

LATEST = -1
EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, or use the continue token in this "
    "response to retrieve the remainder of the results; continuing with it results in an "
    "inconsistent list."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a list goes on: behind an object, at a version or, LATEST, at the present one."""

    version: int
    after: tuple[str, str]

    def token(self) -> str:
        """Return the text that stands for this place; clients must not look into it."""
        namespace, name = self.after
        told: Document = {"v": "meta.k8s.io/v1", "rv": self.version, "ns": namespace, "name": name}
        return base64.urlsafe_b64encode(encode(told)).decode().rstrip("=")


def place_of(token: str) -> Place:
    """Read a token; raises RefusalError (400)."""
    try:
        told = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, NotADocumentError, ValueError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    version = told.get("rv")
    if not isinstance(version, int):
        raise bad_request("continue key is not valid: no version")
    return Place(version=version, after=(text(told, "ns"), text(told, "name")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a list request asks for; `version` None is the present."""

    limit: int = 0
    place: Place | None = None
    version: int | None = None
    exact: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wish":
        """Read the query of a list; raises RefusalError (400)."""
        token, version = query.get("continue", ""), query.get("resourceVersion", "")
        match = query.get("resourceVersionMatch", "")
        limit = number("limit", query.get("limit") or "0")
        if token and version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        if match and not version:
            raise bad_request(
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if match not in ("", "Exact", "NotOlderThan"):
            raise bad_request(f"resourceVersionMatch: Unsupported value: {match!r}")
        told = number("resourceVersion", version or "0")
        return cls(
            limit=limit,
            place=place_of(token) if token else None,
            version=told or None,
            # A page of an old version is exact unless said otherwise; a whole list is not.
            exact=match == "Exact" or (bool(told and limit) and not match),
        )


def read_page(store: Store, scope: Key, selection: Selection, wish: Wish) -> Document:
    """Return a list or a page of it; raises RefusalError (410 where its version is forgotten)."""
    found, version = _read(store, scope, wish)
    start = wish.place.after if wish.place else ("", "")
    chosen = [
        (key, each)
        for key, each in found
        if (key.namespace, key.name) > start and selection.takes(each)
    ]
    page = chosen[: wish.limit] if wish.limit else chosen
    items: list[Json] = [each for _, each in page]
    metadata: Document = {"resourceVersion": str(version)}
    left = len(chosen) - len(page)
    if left:
        last = page[-1][0]
        place = Place(version=version, after=(last.namespace, last.name))
        metadata["continue"] = place.token()
        if selection.is_everything:
            metadata["remainingItemCount"] = left
    kind = scope.resource
    return {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _read(store: Store, scope: Key, wish: Wish) -> tuple[list[tuple[Key, Document]], int]:
    if wish.place is None:
        if not wish.exact and wish.version is not None:
            # Not older than what was asked for: the present, once it has come that far.
            store.check_reached(wish.version)
            return store.read(scope)
        return store.read(scope, wish.version)
    if wish.place.version == LATEST:
        return store.read(scope)
    try:
        return store.read(scope, wish.place.version)
    except RefusalError as error:
        if error.status != 410:
            raise
        refusal = expired(EXPIRED)
        refusal.resume = Place(version=LATEST, after=wish.place.after).token()
        raise refusal from error


def number(name: str, value: str) -> int:
    """Return a number of the query; raises RefusalError (400)."""
    if not value.isdecimal():
        raise bad_request(f'{name}: Invalid value: "{value}": a number is required')
    return int(value)
