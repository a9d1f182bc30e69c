"""Server-side apply, and what other writes do to ownership.

An applied configuration is merged into the object: maps field by field, lists of type map entry by
entry, everything else as a whole. Fields that its manager no longer applies go, unless another
manager owns them; a field of another manager with another value is a conflict unless forced.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from e2e.world.documents import Document, Json, section
from e2e.world.ownership import (
    UPDATE,
    Fields,
    Holding,
    Holdings,
    Owner,
    Path,
    entry,
    give,
    ownable,
    read,
    take,
    whole,
    without,
    write,
)
from e2e.world.refusals import About, Cause, RefusalError
from e2e.world.schema import LIST_TYPE, MAP_TYPE, field_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Who writes when (RFC 3339), and which top-level fields this endpoint leaves alone."""

    owner: Owner
    now: str
    left_alone: frozenset[str] = frozenset()

    @property
    def unowned(self) -> frozenset[str]:
        """The same as elements of a path."""
        return frozenset(f"f:{name}" for name in self.left_alone)


def updated(before: Document, after: Document, schema: Document, act: Act) -> list[Json]:
    """Return the managedFields after a write that is no apply: who changes a field owns it."""
    old, new = ownable(before, schema), ownable(after, schema)
    changed = frozenset(path for path in new if path not in old or new[path] != old[path])
    gone = frozenset(old) - frozenset(new)
    holdings = read(before)
    own = holdings[act.owner].fields if act.owner in holdings else frozenset()
    holdings = take(holdings, changed | gone, act.owner)
    return write(give(holdings, act.owner, without((own | changed) - gone, act.unowned), act.now))


def applied(
    live: Document, config: Document, schema: Document, act: Act, *, force: bool
) -> Document:
    """Return `live` with `config` applied, managedFields included.

    Raises RefusalError (409) with a cause for each field that another manager owns.
    """
    holdings = read(live)
    wanted = without(frozenset(ownable(config, schema)), act.unowned)
    merged = _merge(live, config, whole(schema))
    last = holdings[act.owner].fields if act.owner in holdings else frozenset()
    abandoned = _unclaimed(last - wanted, wanted, holdings, act.owner)
    merged = _remove(merged, abandoned, whole(schema))
    document = merged if isinstance(merged, dict) else {}
    old, new = ownable(live, schema), ownable(document, schema)
    changed = frozenset(path for path in new if path not in old or new[path] != old[path])
    changed = without(changed, act.unowned)
    contested = _contested(holdings, changed, act.owner)
    if contested and not force:
        raise _conflict(contested)
    holdings = take(holdings, changed | (frozenset(old) - frozenset(new)), act.owner)
    owners = write(give(holdings, act.owner, wanted, act.now))
    metadata = section(document, "metadata") | {"managedFields": owners}
    return document | {"metadata": metadata}


def _merge(live: Json, config: Json, schema: Document) -> Json:
    match live, config:
        case dict(), dict() if schema.get(MAP_TYPE) != "atomic":
            merged = dict(live)
            for name, value in config.items():
                merged[name] = _merge(live.get(name), value, field_schema(schema, name))
            return merged
        case list(), list() if schema.get(LIST_TYPE) in ("map", "set"):
            return _merge_entries(live, config, schema)
        case _:
            return config


def _merge_entries(live: list[Json], config: list[Json], schema: Document) -> list[Json]:
    wanted = {entry(each, schema): each for each in config}
    items = section(schema, "items")
    merged = [
        _merge(each, wanted.pop(entry(each, schema)), items)
        if entry(each, schema) in wanted
        else each
        for each in live
    ]
    return [*merged, *wanted.values()]


def _unclaimed(paths: Fields, wanted: Fields, holdings: Holdings, owner: Owner) -> Fields:
    """Return the paths that neither another manager nor the configuration holds or goes below."""
    others = wanted.union(*(each.fields for who, each in holdings.items() if who != owner))
    claimed = {path[:length] for path in others for length in range(1, len(path) + 1)}
    return frozenset(path for path in paths if path not in claimed)


def _remove(value: Json, paths: Iterable[Path], schema: Document) -> Json:
    """Return `value` without what `paths` lead to; a container that this empties goes too."""
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    if not below:
        return value
    match value:
        case dict():
            fields = (
                (name, each, below.get(f"f:{name}", []), field_schema(schema, name))
                for name, each in value.items()
            )
            left = ((name, _left(each, gone, inner)) for name, each, gone, inner in fields)
            return {name: each for name, each in left if each is not _GONE}
        case list():
            items = section(schema, "items")
            entries = (_left(each, below.get(entry(each, schema), []), items) for each in value)
            return [each for each in entries if each is not _GONE]
        case _:
            return value


_GONE: Document = {}


def _left(value: Json, gone: list[Path], schema: Document) -> Json:
    if () in gone:
        return _GONE
    left = _remove(value, gone, schema)
    return _GONE if gone and not left and isinstance(left, dict | list) else left


def _contested(
    holdings: Mapping[Owner, Holding], changed: Fields, owner: Owner
) -> list[tuple[Owner, Holding, Path]]:
    return [
        (who, holding, path)
        for who, holding in holdings.items()
        if who != owner
        for path in sorted(holding.fields & changed)
    ]


def _conflict(contested: list[tuple[Owner, Holding, Path]]) -> RefusalError:
    causes = [
        Cause(
            reason="FieldManagerConflict",
            message=f"conflict with {_named(owner, holding)}",
            field="".join(_shown(element) for element in path),
        )
        for owner, holding, path in contested
    ]
    told = [f"{cause.message}: {cause.field}" for cause in causes]
    plural = "s" if len(told) > 1 else ""
    said = "\n".join(["", *(f"- {each}" for each in told)]) if plural else f" {told[0]}"
    message = f"Apply failed with {len(told)} conflict{plural}:{said}"
    return RefusalError(409, "Conflict", message, about=About(), causes=causes)


def _named(owner: Owner, holding: Holding) -> str:
    named = f'"{owner.name}"'
    if owner.subresource:
        named += f' with subresource "{owner.subresource}"'
    if owner.operation == UPDATE:
        named += f" using {owner.api_version} at {holding.time}"
    return named


def _shown(element: str) -> str:
    kind, _, name = element.partition(":")
    match kind:
        case "f":
            return f".{name}"
        case "k":
            keys = json.loads(name)
            return f"[{','.join(f'{key}={json.dumps(value)}' for key, value in keys.items())}]"
        case _:
            return f"[={name}]"
