"""Structural OpenAPI v3 schemas: which fields an object keeps, and what is wrong with it.

The subset of `openAPIV3Schema` that decides whether custom resources are accepted: types, required
fields, enums, patterns, bounds and the Kubernetes extensions for lists. No defaults, no CEL.
"""

import json
import re
from collections.abc import Iterator
from types import NoneType

from e2e.world.documents import Document, Json, section
from e2e.world.refusals import Cause

KEPT_OPEN = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def prune(document: Document, schema: Document) -> Document:
    """Return the object without the fields that its schema does not know."""
    kept = _pruned(document, schema)
    own = {name: document[name] for name in _ROOT_FIELDS if name in document}
    return (kept if isinstance(kept, dict) else {}) | own


def unknown_fields(value: Json, schema: Document, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that pruning would drop from an object."""
    match value:
        case dict():
            for name, each in value.items():
                if not path and name in _ROOT_FIELDS:
                    continue
                if _keeps(name, schema):
                    yield from unknown_fields(each, field_schema(schema, name), _below(path, name))
                else:
                    yield _below(path, name)
        case list():
            for index, each in enumerate(value):
                yield from unknown_fields(each, section(schema, "items"), f"{path}[{index}]")
        case _:
            pass


def faults(document: Document, schema: Document) -> tuple[Cause, ...]:
    """Return everything that is wrong with the object, in the order of its fields."""
    properties = {
        name: shape
        for name, shape in section(schema, "properties").items()
        if name not in _ROOT_FIELDS
    }
    body = {name: value for name, value in document.items() if name not in _ROOT_FIELDS}
    return tuple(_faults(body, schema | {"properties": properties}, ""))


def field_schema(schema: Document, name: str) -> Document:
    """Return the schema of a field of an object, {} where nothing is said about it."""
    declared = section(schema, "properties").get(name)
    return declared if isinstance(declared, dict) else section(schema, "additionalProperties")


def list_keys(schema: Document) -> tuple[str, ...]:
    """Return the keys by which entries of a list of type map are told apart, else ()."""
    names = schema.get(LIST_KEYS)
    if schema.get(LIST_TYPE) != "map" or not isinstance(names, list):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def _pruned(value: Json, schema: Document) -> Json:
    match value:
        case dict():
            return {
                name: _pruned(each, field_schema(schema, name))
                for name, each in value.items()
                if _keeps(name, schema)
            }
        case list():
            return [_pruned(each, section(schema, "items")) for each in value]
        case _:
            return value


def _keeps(name: str, schema: Document) -> bool:
    is_open = schema.get(KEPT_OPEN) is True or bool(schema.get("additionalProperties"))
    return is_open or name in section(schema, "properties")


def _faults(value: Json, schema: Document, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable") is True:
        return
    wrong = _type_fault(value, schema, path)
    if wrong:
        yield wrong
        return
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        supported = ", ".join(json.dumps(each) for each in allowed)
        said = f"Unsupported value: {json.dumps(value)}: supported values: {supported}"
        yield Cause(reason="FieldValueNotSupported", message=said, field=path)
    match value:
        case dict():
            yield from _object_faults(value, schema, path)
        case list():
            yield from _list_faults(value, schema, path)
        case bool() | None:
            pass
        case str():
            yield from _text_faults(value, schema, path)
        case _:
            yield from _number_faults(value, schema, path)


def _object_faults(value: Document, schema: Document, path: str) -> Iterator[Cause]:
    required = schema.get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in value:
            where = _below(path, name)
            yield Cause(reason="FieldValueRequired", message="Required value", field=where)
    for name, each in value.items():
        yield from _faults(each, field_schema(schema, name), _below(path, name))


def _list_faults(value: list[Json], schema: Document, path: str) -> Iterator[Cause]:
    yield from _bounds(len(value), schema, path, ("minItems", "maxItems", "items"))
    keys, seen = list_keys(schema), set[str]()
    for index, each in enumerate(value):
        where = f"{path}[{index}]"
        yield from _faults(each, section(schema, "items"), where)
        if keys and isinstance(each, dict):
            identity = json.dumps({key: each.get(key) for key in keys})
        elif schema.get(LIST_TYPE) == "set":
            identity = json.dumps(each)
        else:
            continue
        if identity in seen:
            said = f"Duplicate value: {identity}"
            yield Cause(reason="FieldValueDuplicate", message=said, field=where)
        seen.add(identity)


def _text_faults(value: str, schema: Document, path: str) -> Iterator[Cause]:
    yield from _bounds(len(value), schema, path, ("minLength", "maxLength", "chars long"))
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not re.search(pattern, value):
        yield _bad(value, path, f"should match '{pattern}'")


def _number_faults(value: float, schema: Document, path: str) -> Iterator[Cause]:
    yield from _bounds(value, schema, path, ("minimum", "maximum", ""))
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield _bad(value, path, "must be of type int32")


def _bounds(
    size: float, schema: Document, path: str, words: tuple[str, str, str]
) -> Iterator[Cause]:
    least, most = schema.get(words[0]), schema.get(words[1])
    if isinstance(least, int | float) and size < least:
        yield _bad(size, path, f"should be at least {least} {words[2]}".rstrip())
    if isinstance(most, int | float) and size > most:
        yield _bad(size, path, f"should be at most {most} {words[2]}".rstrip())


def _type_fault(value: Json, schema: Document, path: str) -> Cause | None:
    wanted = schema.get("type")
    if schema.get(INT_OR_STRING) is True:
        fits, wanted = _is_a(value, "integer") or _is_a(value, "string"), "integer or string"
    elif not isinstance(wanted, str):
        return None
    else:
        fits = _is_a(value, wanted)
    if fits:
        return None
    told = f'must be of type {wanted}: "{_type_of(value)}"'
    bad = _bad(value, path, told)
    return Cause(reason="FieldValueTypeInvalid", message=bad.message, field=path)


def _is_a(value: Json, wanted: str) -> bool:
    actual = _type_of(value)
    return actual == wanted or (wanted == "number" and actual == "integer")


_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    NoneType: "null",
}


def _type_of(value: Json) -> str:
    return _TYPES[type(value)]


def _bad(value: Json, path: str, why: str) -> Cause:
    shown = json.dumps(value) if not isinstance(value, dict | list) else f'"{_type_of(value)}"'
    message = f"Invalid value: {shown}: {path} in body {why}"
    return Cause(reason="FieldValueInvalid", message=message, field=path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
