"""Who owns which field of an object: `metadata.managedFields`, read, written and kept up to date.

A path is a tuple of elements in the notation of FieldsV1: `f:name` for a field, `k:{…}` for the
entry of a list with these keys, `v:…` for an entry of a set.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from e2e.world.documents import Document, Json, section, text
from e2e.world.schema import LIST_TYPE, MAP_TYPE, field_schema, list_keys

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = frozenset[Path]

APPLY, UPDATE = "Apply", "Update"

# What the server itself keeps belongs to nobody.
_UNOWNED = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "generation",
            "managedFields",
            "name",
            "namespace",
            "resourceVersion",
            "selfLink",
            "uid",
        )
    ]
)
_METADATA: Document = {
    "properties": {
        "finalizers": {LIST_TYPE: "set"},
        "ownerReferences": {LIST_TYPE: "map", "x-kubernetes-list-map-keys": ["uid"]},
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who writes, how, and through which subresource; each is an entry of its own."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What an owner owns, since when (RFC 3339)."""

    fields: Fields
    time: str


Holdings: TypeAlias = dict[Owner, Holding]


def whole(schema: Document) -> Document:
    """Return the schema of a kind with what all kinds share."""
    return schema | {"properties": section(schema, "properties") | {"metadata": _METADATA}}


def leaves(value: Json, schema: Document, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield each path that can be owned with its value; entries of lists come before their fields.

    `schema` says which lists are merged by key; every other list is owned as one.
    """
    match value:
        case dict() if value and schema.get(MAP_TYPE) != "atomic":
            if path and path[-1].startswith("k:"):
                yield path, None
            for name, each in value.items():
                yield from leaves(each, field_schema(schema, name), (*path, f"f:{name}"))
        case list() if value and schema.get(LIST_TYPE) in ("map", "set"):
            for each in value:
                yield from leaves(each, section(schema, "items"), (*path, entry(each, schema)))
        case _ if path and path[-1].startswith("v:"):
            yield path, None
        case _:
            yield path, value


def entry(item: Json, schema: Document) -> str:
    """Return the path element of an entry of a list that is merged."""
    keys = list_keys(schema)
    if keys and isinstance(item, dict):
        return f"k:{_compact({key: item.get(key) for key in sorted(keys)})}"
    return f"v:{_compact(item)}"


def ownable(document: Document, schema: Document) -> dict[Path, Json]:
    """Return what of a whole object can be owned, with its values."""
    found = dict(leaves(document, whole(schema)))
    return {path: value for path, value in found.items() if path not in _UNOWNED}


def without(fields: Fields, prefixes: frozenset[str]) -> Fields:
    """Return the paths that do not begin with one of these elements."""
    return frozenset(path for path in fields if path[0] not in prefixes)


def read(document: Document) -> Holdings:
    """Return what an object's managedFields say."""
    listed = section(document, "metadata").get("managedFields")
    return {
        Owner(
            name=text(each, "manager"),
            operation=text(each, "operation"),
            api_version=text(each, "apiVersion"),
            subresource=text(each, "subresource"),
        ): Holding(fields=frozenset(_decode(section(each, "fieldsV1"))), time=text(each, "time"))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    }


def write(holdings: Mapping[Owner, Holding]) -> list[Json]:
    """Return managedFields; owners of nothing are left out."""
    written: list[Json] = []
    for owner, holding in sorted(holdings.items(), key=_order):
        if not holding.fields:
            continue
        each: Document = {
            "manager": owner.name,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "time": holding.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _encode(holding.fields),
        }
        written.append(each | ({"subresource": owner.subresource} if owner.subresource else {}))
    return written


def give(holdings: Mapping[Owner, Holding], owner: Owner, fields: Fields, now: str) -> Holdings:
    """Return the holdings with `owner` owning exactly `fields`."""
    held = holdings.get(owner)
    kept = held if held and held.fields == fields else Holding(fields=fields, time=now)
    return {**holdings, owner: kept}


def take(holdings: Mapping[Owner, Holding], fields: Fields, keeper: Owner) -> Holdings:
    """Return the holdings with `fields` taken from everybody but `keeper`."""
    return {
        owner: holding
        if owner == keeper or not holding.fields & fields
        else Holding(fields=holding.fields - fields, time=holding.time)
        for owner, holding in holdings.items()
    }


def _order(item: tuple[Owner, Holding]) -> tuple[bool, str, str, str]:
    owner, holding = item
    return owner.operation != APPLY, holding.time, owner.name, owner.subresource


def _encode(fields: Fields) -> Document:
    tree: Document = {}
    for path in sorted(fields):
        node = tree
        for element in path:
            node = _child(node, element)
        # A path that has others below it is told from a mere step on the way by a dot.
        node["."] = {}
    return _trimmed(tree)


def _child(node: Document, element: str) -> Document:
    below = node.setdefault(element, {})
    if not isinstance(below, dict):
        raise TypeError("a tree of fields consists of objects")
    return below


def _trimmed(node: Document) -> Document:
    if set(node) == {"."}:
        return {}
    return {
        name: _trimmed(below) if isinstance(below, dict) and name != "." else below
        for name, below in node.items()
    }


def _decode(node: Document, path: Path = ()) -> Iterator[Path]:
    if not node and path:
        yield path
    for name, below in node.items():
        if name == ".":
            yield path
        elif isinstance(below, dict):
            yield from _decode(below, (*path, name))


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))
