"""The Kubernetes API's HTTP surface over a registry, as a function of a request.

What kubectl, client libraries and node agents use: discovery, objects with their status, the four
kinds of patch, lists in pages, watches, definitions of new kinds. The suite
`tests/e2e_world/contract` holds it, and any conformant kube-apiserver, to what clients rely on.
"""

from collections.abc import Mapping
from dataclasses import replace

from e2e.world import paging, watching
from e2e.world.authentication import Authenticator
from e2e.world.documents import Document
from e2e.world.openapi import describe
from e2e.world.refusals import RefusalError, no_such_path, status_object
from e2e.world.registry import Registry
from e2e.world.resources import BUILT_IN, Key, discover
from e2e.world.selectors import Selection, select
from e2e.world.tokens import TokenRefusedError
from e2e.world.watching import Periods
from e2e.world.web import Request, Response, answer
from e2e.world.writing import Target, Writer

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class KubeApi:
    """Answers as an API server does; whoever `authenticate` knows may do everything."""

    def __init__(
        self, registry: Registry, authenticate: Authenticator, periods: Periods | None = None
    ) -> None:
        self._registry = registry
        self._authenticate = authenticate
        self._periods = periods or Periods()
        self._writer = Writer(registry)

    def __call__(self, request: Request) -> Response:
        """Answer one request; every refusal but that of an unknown path is a Status object."""
        facts: Document = {}
        try:
            if request.path not in OPEN_PATHS:
                facts |= self._who(request)
            response = self._route(request)
        except RefusalError as error:
            facts["refused"] = error.message
            response = _refusal(error)
        return replace(response, facts=facts)

    def _who(self, request: Request) -> Document:
        try:
            known = self._authenticate(request)
        except TokenRefusedError as error:
            raise RefusalError(401, "Unauthorized", f"Unauthorized: {error}") from error
        if known is None:
            raise RefusalError(401, "Unauthorized", "Unauthorized")
        return known

    def _route(self, request: Request) -> Response:
        if request.path == "/version":
            return answer(200, {"major": "1", "minor": "31", "gitVersion": "v1.31.0-lab"})
        if request.path in OPEN_PATHS:
            return Response(body=b"ok", content_type="text/plain")
        kinds = self._registry.kinds()
        found = discover(request.path, kinds) or describe(request.path, kinds)
        if found is not None:
            return answer(200, found)
        target = self._target(request.path)
        if target.key.name:
            return self._object(request, target)
        return self._collection(request, target)

    def _target(self, path: str) -> Target:
        match path.strip("/").split("/"):
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise no_such_path()
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        plural, name, part = (*rest, "", "", "")[:3]
        kind = self._registry.kind(group, version, plural)
        if kind is None:
            raise self._unknown(group, version)
        parts = ("", "status") if kind.has_status else ("",)
        if part not in parts or len(rest) > 3 or (namespace and not kind.namespaced):
            raise _no_such_resource()
        key = Key(resource=kind, namespace=namespace, name=name)
        return Target(key=key, subresource=part)

    def _unknown(self, group: str, version: str) -> RefusalError:
        """Return the 404 of a kind that is not served: a Status only in the server's own groups.

        A path in a group that definitions make is nobody's until there is one for its kind.
        """
        own = any((k.group, k.version) == (group, version) for k in BUILT_IN)
        return _no_such_resource() if own else no_such_path()

    def _object(self, request: Request, target: Target) -> Response:
        match request.method:
            case "GET":
                return answer(200, self._registry.get(target.key))
            case "PUT":
                return self._writer.replace(request, target)
            case "PATCH":
                return self._writer.patch(request, target)
            case "DELETE" if not target.subresource:
                return self._writer.delete(request, target)
            case _:
                raise _forbidden_method()

    def _collection(self, request: Request, target: Target) -> Response:
        match request.method:
            case "GET" if request.query.get("watch") in ("1", "true"):
                return self._watch(request.query, target.key)
            case "GET":
                wish = paging.Wish.of(request.query)
                selection = _selection(request.query, target.key)
                page = paging.read_page(self._registry.store, target.key, selection, wish)
                return answer(200, page)
            case "POST":
                return self._writer.create(request, target)
            case "DELETE":
                selection = _selection(request.query, target.key)
                return self._writer.delete_all(request, target, selection)
            case _:
                raise _forbidden_method()

    def _watch(self, query: Mapping[str, str], scope: Key) -> Response:
        wish = watching.Wish.of(query, self._periods)
        selection = _selection(query, scope)
        store = self._registry.store
        return watching.watch(store, scope, selection, wish, self._periods)


def _selection(query: Mapping[str, str], scope: Key) -> Selection:
    fields, labels = query.get("fieldSelector", ""), query.get("labelSelector", "")
    return select(fields, labels, scope.resource.selectable)


def _refusal(error: RefusalError) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.plain:
        body = error.message.encode()
        return Response(
            status=error.status,
            body=body,
            content_type="text/plain; charset=utf-8",
            headers=headers,
        )
    return replace(answer(error.status, status_object(error)), headers=headers)


def _no_such_resource() -> RefusalError:
    return RefusalError(404, "NotFound", "the server could not find the requested resource")


def _forbidden_method() -> RefusalError:
    return RefusalError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )
