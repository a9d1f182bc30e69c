"""JSON documents as typed trees, and RFC 7386 merge patches over them."""

import json
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Document: TypeAlias = dict[str, Json]


class NotADocumentError(ValueError):
    """The bytes are not one JSON object."""


def encode(document: Document) -> bytes:
    """Return the compact UTF-8 form, which is how a Kubernetes API server writes."""
    return json.dumps(document, separators=(",", ":")).encode()


def decode(raw: bytes) -> Document:
    """Return the object that `raw` holds; raises NotADocumentError for anything else."""
    try:
        document: Json = json.loads(raw)
    except ValueError as error:
        raise NotADocumentError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise NotADocumentError(f"a JSON {type(document).__name__}, not an object")
    return document


def section(document: Document, key: str) -> Document:
    """Return the object under `key`, or an empty one where there is none."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def text(document: Document, *path: str) -> str:
    """Return the string at the end of `path`, or "" where there is none."""
    for key in path[:-1]:
        document = section(document, key)
    value = document.get(path[-1])
    return value if isinstance(value, str) else ""


def merge(target: Json, patch: Json) -> Json:
    """Return `target` with an RFC 7386 merge patch applied; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
