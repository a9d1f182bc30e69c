"""The part of OpenAPI v3 by which kubectl learns that the server checks fields itself."""

from collections.abc import Iterable

from e2e.world.documents import Document, Json
from e2e.world.resources import Resource

ROOT = "/openapi/v3"


def describe(path: str, known: Iterable[Resource]) -> Document | None:
    """Return the document at `path`, or None where there is none."""
    kinds = tuple(known)
    if path == ROOT:
        places = sorted({_place(kind) for kind in kinds})
        return {"paths": {each: {"serverRelativeURL": f"{ROOT}/{each}"} for each in places}}
    found = [kind for kind in kinds if path == f"{ROOT}/{_place(kind)}"]
    if not found:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.31.0-lab"},
        "paths": {f"/{_place(kind)}/{kind.plural}/{{name}}": _operations(kind) for kind in found},
    }


def _place(kind: Resource) -> str:
    return f"{'apis' if kind.group else 'api'}/{kind.api_version}"


def _operations(kind: Resource) -> Document:
    named: Document = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    parameters: list[Json] = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("fieldManager", "fieldValidation")
    ]
    return {"patch": {"parameters": parameters, "x-kubernetes-group-version-kind": named}}
