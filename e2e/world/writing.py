"""The requests that change objects: bodies read, patches made, the registry's answer returned.

Bodies are JSON. Real servers also read YAML, of which JSON is a part: clients that write JSON into
`application/apply-patch+yaml` (as every client library does) are served, others get a 400.
"""

import json
from dataclasses import dataclass

from e2e.world.documents import Document, Json, NotADocumentError, decode, merge, section, text
from e2e.world.patches import apply_operations
from e2e.world.refusals import About, Cause, RefusalError, bad_request, details_of, invalid
from e2e.world.registry import Registry, now_text
from e2e.world.resources import DEFINITIONS, Key
from e2e.world.rules import Origin
from e2e.world.selectors import Selection
from e2e.world.web import Request, Response, answer

MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
OPERATIONS = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
BODIES = ("application/json", "application/yaml", "")
MANAGER_LIMIT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names: a collection, an object, or an object's status."""

    key: Key
    subresource: str = ""


class Writer:
    """Carries out POST, PUT, PATCH and DELETE; every method raises RefusalError."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def create(self, request: Request, target: Target) -> Response:
        """Answer POST to a collection."""
        _check_type(request)
        made = self._registry.create(target.key, _body(request), _origin(request, target))
        return answer(201, made)

    def replace(self, request: Request, target: Target) -> Response:
        """Answer PUT."""
        _check_type(request)
        origin = _origin(request, target, whole=True)
        return answer(200, self._registry.replace(target.key, _body(request), origin))

    def patch(self, request: Request, target: Target) -> Response:
        """Answer PATCH of each of the four kinds; a strategic patch is taken as a merge patch."""
        origin = _origin(request, target)
        kind = _content_type(request)
        if kind == APPLY:
            return self._apply(request, target, origin)
        if "force" in request.query:
            raise _bad_option("force", "FieldValueForbidden", "Forbidden: may not be specified")
        if kind == OPERATIONS:
            operations = _json(request)
            made = self._registry.change(
                target.key, lambda present: _object(apply_operations(present, operations)), origin
            )
        elif kind in MERGES:
            patch = _body(request)
            made = self._registry.change(
                target.key, lambda present: _object(merge(present, patch)), origin
            )
        else:
            known = ", ".join((OPERATIONS, *MERGES, APPLY))
            message = f"the body of the request was in an unknown format - accepted: {known}"
            raise RefusalError(415, "UnsupportedMediaType", message)
        return answer(200, made)

    def delete(self, request: Request, target: Target) -> Response:
        """Answer DELETE of an object: a Status, or the object while finalizers hold it."""
        options = _body(request) if request.body.strip() else {}
        _check_no_dry_run(request, options)
        last, gone = self._registry.delete(target.key, options)
        if not gone or target.key.resource == DEFINITIONS:
            return answer(200, last)
        about = target.key.about
        uid = text(last, "metadata", "uid")
        details = details_of(About(name=about.name, group=about.group, kind=about.kind, uid=uid))
        told: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return answer(200, told | {"details": details})

    def delete_all(self, request: Request, target: Target, selection: Selection) -> Response:
        """Answer DELETE of a collection: the list of what was removed."""
        _check_no_dry_run(request, {})
        items: list[Json] = [*self._registry.delete_all(target.key, selection)]
        kind = target.key.resource
        metadata: Document = {"resourceVersion": str(self._registry.store.version)}
        head: Document = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        return answer(200, head | {"metadata": metadata, "items": items})

    def _apply(self, request: Request, target: Target, origin: Origin) -> Response:
        if not request.query.get("fieldManager"):
            said = "Required value: is required for apply patch"
            raise _bad_option("fieldManager", "FieldValueRequired", said)
        force = request.query.get("force") == "true"
        config = _body(request)
        for name in ("apiVersion", "kind"):
            if not text(config, name):
                raise bad_request(f"Object '{name}' is missing in the applied configuration")
        made, fresh = self._registry.apply(target.key, config, origin, force=force)
        return answer(201 if fresh else 200, made)


def _origin(request: Request, target: Target, *, whole: bool = False) -> Origin:
    _check_no_dry_run(request, {})
    # Who names no manager is known by the program's name.
    agent = request.headers.get("user-agent", "").partition("/")[0]
    manager = request.query.get("fieldManager") or agent[:MANAGER_LIMIT] or "unknown"
    if len(manager) > MANAGER_LIMIT:
        raise _bad_option("fieldManager", "FieldValueTooLong", "Too long: may not be over 128")
    return Origin(
        manager=manager,
        subresource=target.subresource,
        now=now_text(),
        whole=whole,
        strict=request.query.get("fieldValidation") == "Strict",
    )


def _check_no_dry_run(request: Request, options: Document) -> None:
    if request.query.get("dryRun") or options.get("dryRun"):
        raise bad_request("dryRun is not part of this API server")


def _bad_option(name: str, reason: str, said: str) -> RefusalError:
    fault = Cause(reason=reason, message=said, field=name)
    return invalid("PatchOptions.meta.k8s.io", About(group="meta.k8s.io"), [fault])


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()


def _check_type(request: Request) -> None:
    if _content_type(request) not in BODIES:
        message = f"the body of the request was in an unknown format - accepted: {BODIES[0]}"
        raise RefusalError(415, "UnsupportedMediaType", message)


def _body(request: Request) -> Document:
    try:
        return decode(request.body)
    except NotADocumentError as error:
        raise bad_request(f"the body is {error}") from error


def _json(request: Request) -> Json:
    try:
        found: Json = json.loads(request.body)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    return found


def _object(patched: Json) -> Document:
    if not isinstance(patched, dict) or not section(patched, "metadata"):
        raise bad_request("the patch leaves no object")
    return patched
