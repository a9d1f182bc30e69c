"""The Kubernetes API's HTTP surface over a store, as a function of a request.

Only what kubectl and node agents use: discovery, objects with their status, merge patches (a
strategic patch is taken as one), lists with field selectors, watches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from e2e.world.documents import Document, Json, NotADocumentError, decode, encode, merge, text
from e2e.world.resources import discover
from e2e.world.store import Key, RefusalError, Store
from e2e.world.tokens import TokenRefusedError
from e2e.world.web import Request, Response, answer

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
WATCH_SECONDS = 300.0

Authenticate = Callable[[str], Document]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names: a collection, an object, or an object's status."""

    key: Key
    status_only: bool = False


class KubeApi:
    """Answers as an API server does; `authenticate` maps a bearer token to its claims."""

    def __init__(self, store: Store, authenticate: Authenticate) -> None:
        self._store = store
        self._authenticate = authenticate

    def __call__(self, request: Request) -> Response:
        """Answer one request; every refusal is a Status object."""
        facts: Document = {}
        try:
            if request.path not in OPEN_PATHS:
                facts |= self._who(request)
            response = self._route(request)
        except RefusalError as error:
            facts["refused"] = error.message
            response = answer(error.status, status_object(error))
        return Response(
            status=response.status,
            body=response.body,
            content_type=response.content_type,
            stream=response.stream,
            facts=facts,
        )

    def _who(self, request: Request) -> Document:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            raise RefusalError(401, "Unauthorized", "Unauthorized")
        try:
            claims = self._authenticate(token)
        except TokenRefusedError as error:
            raise RefusalError(401, "Unauthorized", f"Unauthorized: {error}") from error
        return {"user": claims.get("oid"), "token": claims.get("uti"), "issued": claims.get("iat")}

    def _route(self, request: Request) -> Response:
        if request.path == "/version":
            return answer(200, {"major": "1", "minor": "31", "gitVersion": "v1.31.0-lab"})
        if request.path in OPEN_PATHS:
            return Response(body=b"ok", content_type="text/plain")
        found = discover(request.path, self._store.kinds())
        if found is not None:
            return answer(200, found)
        target = self._target(request.path)
        return self._object(request, target) if target.key.name else self._many(request, target.key)

    def _many(self, request: Request, scope: Key) -> Response:
        if request.method == "POST":
            return answer(201, self._create(request, scope))
        if request.method != "GET":
            raise _forbidden_method()
        if request.query.get("watch") in ("1", "true"):
            return Response(stream=self._watch(request, scope))
        return answer(200, self._list(request, scope))

    def _target(self, path: str) -> Target:
        match path.strip("/").split("/"):
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise _missing()
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        plural, name, part = (*rest, "", "", "")[:3]
        for kind in self._store.kinds():
            if (kind.group, kind.version, kind.plural) == (group, version, plural):
                known = part in (("", "status") if kind.has_status else ("",))
                if known and len(rest) <= 3 and (kind.namespaced or not namespace):
                    key = Key(resource=kind, namespace=namespace, name=name)
                    return Target(key=key, status_only=part == "status")
        raise _missing()

    def _object(self, request: Request, target: Target) -> Response:
        key = target.key
        match request.method:
            case "GET":
                return answer(200, self._store.get(key))
            case "DELETE" if not target.status_only:
                return answer(200, self._store.delete(key))
            case "PUT":
                wanted = _body(request)
            case "PATCH":
                wanted = self._patched(request, key)
            case _:
                raise _forbidden_method()
        return answer(200, self._store.replace(key, wanted, status_only=target.status_only))

    def _patched(self, request: Request, key: Key) -> Document:
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind not in MERGES:
            raise RefusalError(415, "UnsupportedMediaType", f"the patch must be one of {MERGES}")
        # The version merged over is kept in the result, so a change in between is a conflict.
        merged = merge(self._store.get(key), _body(request))
        return merged if isinstance(merged, dict) else {}

    def _create(self, request: Request, scope: Key) -> Document:
        wanted = _body(request)
        key = Key(
            resource=scope.resource,
            namespace=scope.namespace,
            name=text(wanted, "metadata", "name"),
        )
        if not key.name:
            raise RefusalError(422, "Invalid", "metadata.name: Required value")
        return self._store.create(key, wanted)

    def _list(self, request: Request, scope: Key) -> Document:
        found, version = self._store.select(scope)
        items: list[Json] = [each for each in found if _selects(request, each)]
        return {
            "kind": f"{scope.resource.kind}List",
            "apiVersion": scope.resource.api_version,
            "metadata": {"resourceVersion": str(version)},
            "items": items,
        }

    def _watch(self, request: Request, scope: Key) -> Iterator[bytes]:
        since = request.query.get("resourceVersion", "0")
        patience = min(float(request.query.get("timeoutSeconds", WATCH_SECONDS)), WATCH_SECONDS)
        present, version = self._store.select(scope)
        if since in ("", "0"):
            for each in present:
                if _selects(request, each):
                    yield _line("ADDED", each)
            since = str(version)
        try:
            for event in self._store.watch(scope, int(since), patience):
                if _selects(request, event.object):
                    yield _line(event.kind, event.object)
        except RefusalError as error:
            yield _line("ERROR", status_object(error))


def status_object(error: RefusalError) -> Document:
    """Return the Status object that tells a client of a refusal."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
    }


def _missing() -> RefusalError:
    return RefusalError(404, "NotFound", "the server could not find the requested resource")


def _forbidden_method() -> RefusalError:
    return RefusalError(405, "MethodNotAllowed", "the server does not allow this method")


def _body(request: Request) -> Document:
    try:
        return decode(request.body)
    except NotADocumentError as error:
        raise RefusalError(400, "BadRequest", f"the body is {error}") from error


def _line(kind: str, document: Document) -> bytes:
    return encode({"type": kind, "object": document}) + b"\n"


def _selects(request: Request, document: Document) -> bool:
    """Tell whether `fieldSelector` and `labelSelector` (equality only) let an object through."""
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        if text(document, *path.split(".")) != value.lstrip("="):
            return False
    for term in filter(None, request.query.get("labelSelector", "").split(",")):
        label, _, value = term.partition("=")
        if text(document, "metadata", "labels", label) != value.lstrip("="):
            return False
    return True
