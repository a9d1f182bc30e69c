"""`cluster.Cluster` by lightkube: the one door to the Kubernetes API.

Facts it rests on:
- httpx splits lines at U+2028 and its kin, which JSON holds raw: events are split at newlines only.
- lightkube's watch neither asks for bookmarks nor limits how long it waits for a byte.
- A watch's error comes as an event within an answer of 200.
- A real server ends a watch after `timeoutSeconds`; a broken network never does, so reading stops
  a little later by itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.core.generic_client import BasicRequest, GenericSyncClient
from lightkube.generic_resource import create_global_resource

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Change, Seen
from hostsync.operations.credential import Plugin, PluginAuth
from hostsync.operations.operation import GROUP, KIND, PLURAL, VERSION, Operation, UnreadableError
from hostsync.redaction import plain, redact

PAGE = 100
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 20.0
"""How long after its end a watch may stay silent before it is taken for broken."""
LINE_LIMIT = 4 << 20
FIELD_MANAGER = "hostsync"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class KubernetesCluster:
    """`cluster.Cluster` with the credential of a kubeconfig, or of the pod this runs in.

    Opens at first use and, after a refused credential, anew at the next: files rotate. Every verb
    may be called from any thread.
    """

    def __init__(self, kubeconfig: Path | None, release: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._release = release
        self._lock = threading.Lock()
        self._open: GenericSyncClient | None = None

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        """See `Cluster.list`."""
        with self._client() as client:
            request = client.prepare_request(
                "list",
                res=_resource(),
                params={"limit": str(PAGE), "fieldSelector": field_selector or None},
            )
            found = client.list(request)
            operations = tuple(_readable(found))
            return operations, found.resourceVersion

    def watch(self, field_selector: str, version: str, seconds: float) -> Iterator[Seen]:
        """See `Cluster.watch`."""
        with self._client() as client:
            asked = client.prepare_request(
                "list",
                res=_resource(),
                watch=True,
                params={
                    "fieldSelector": field_selector or None,
                    "resourceVersion": version,
                    "allowWatchBookmarks": "true",
                    "timeoutSeconds": f"{seconds:.0f}",
                },
            )
            asked.timeout = httpx2.Timeout(CONNECT_SECONDS, read=seconds + SILENCE_SECONDS)
            response = client.send(client.build_adapter_request(asked), stream=True)
            try:
                if response.is_error:
                    response.read()
                _check(response)
                for line in _lines(response.iter_bytes()):
                    yield _seen(line)
            finally:
                response.close()

    def get(self, name: str) -> Operation | None:
        """See `Cluster.get`."""
        try:
            return self._one("get", name)
        except ClusterError as error:
            if error.cause is ClusterCause.GONE:
                return None
            raise

    def patch_status(self, name: str, patch: Mapping[str, object]) -> Operation:
        """See `Cluster.patch_status`."""
        return self._one("patch", name, patch, kind=MERGE, fieldManager=FIELD_MANAGER)

    def apply_status(self, name: str, owner: str, wanted: Mapping[str, object]) -> Operation:
        """See `Cluster.apply_status`."""
        return self._one("patch", name, wanted, kind=APPLY, fieldManager=owner, force="true")

    def delete(self, operation: Operation) -> None:
        """See `Cluster.delete`."""
        with self._client() as client:
            asked = client.prepare_request("delete", res=_resource(), name=operation.name)
            asked.data = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": operation.uid, "resourceVersion": operation.version},
            }
            _check(client.send(client.build_adapter_request(asked)))

    def node_labels(self, node: str) -> Mapping[str, str]:
        """See `Cluster.node_labels`."""
        with self._client() as client:
            asked = BasicRequest(method="GET", url=f"api/v1/nodes/{node}")
            response = client.send(client.build_adapter_request(asked))
            if response.status_code == httpx2.codes.NOT_FOUND:
                return {}
            _check(response)
            return msgspec.json.decode(response.content, type=_Labelled).metadata.labels

    def _one(
        self, verb: str, name: str, body: Mapping[str, object] | None = None, **options: str
    ) -> Operation:
        kind = options.pop("kind", None)
        with self._client() as client:
            document = client.request(
                verb,
                res=_resource().Status if body is not None else _resource(),
                name=name,
                obj=body,
                headers={"Content-Type": kind},
                params=dict(options),
            )
            return Operation.parse(document)

    @contextmanager
    def _client(self) -> Iterator[GenericSyncClient]:
        """The open client; what goes wrong with it is told as ClusterError."""
        with self._lock:
            if self._open is None:
                self._open = _connected(self._kubeconfig, self._release)
            client = self._open
        try:
            yield client
        except ClusterError as error:
            trouble = error
        except httpx2.HTTPStatusError as error:
            trouble = _refusal(error)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            trouble = ClusterError(
                ClusterCause.UNREACHABLE, f"the Kubernetes API does not answer: {_why(error)}"
            )
        except (msgspec.DecodeError, LookupError, ValueError) as error:
            brief = f"the Kubernetes API answered what cannot be read: {_why(error)}"
            trouble = ClusterError(ClusterCause.REJECTED, brief)
        else:
            return
        if trouble.cause in (ClusterCause.DENIED, ClusterCause.CREDENTIAL):
            with self._lock:
                if self._open is client:
                    self._open = None
        raise trouble


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}
    resourceVersion: str = ""  # noqa: N815 - the API's word


class _Labelled(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Authenticated(ConnectionParams):
    """lightkube's parameters with our own way to get a token."""

    auth: PluginAuth | None = None

    def httpx_params(self, config: SingleConfig) -> dict[str, Any]:
        params: dict[str, Any] = super().httpx_params(config)
        return params | ({"auth": self.auth} if self.auth else {})


@functools.cache
def _resource() -> Any:
    return create_global_resource(GROUP, VERSION, KIND, PLURAL)


def _connected(kubeconfig: Path | None, release: Path | None) -> GenericSyncClient:
    try:
        source = (
            KubeConfig.from_service_account()
            if kubeconfig is None
            else KubeConfig.from_file(kubeconfig)
        )
        config = source.get()
        if config is None or config.user is None:
            raise ConfigError("its current context names no user")
        params = _Authenticated(timeout=httpx2.Timeout(CONNECT_SECONDS))
        stanza = config.user.exec
        if stanza is not None:
            variables = {each.name: each.value for each in stanza.env or ()}
            argv = (stanza.command, *(stanza.args or ()))
            plugin = Plugin(version=stanza.apiVersion, argv=argv, environment=variables)
            params.auth = PluginAuth(plugin.running(release))
            config.user.exec = None
        return GenericSyncClient(params, config)
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        where = kubeconfig or "the service account of this pod"
        said = str(error) if isinstance(error, ConfigError) else type(error).__name__
        brief, remedy = f"cannot use {where}: {plain(redact(said))}", _REMEDY
    raise ClusterError(ClusterCause.CREDENTIAL, brief, remedy=remedy)


_REMEDY = "write one with `hostsync kubeconfig`, or mend operations.kubeconfig"


def _check(response: httpx2.Response) -> None:
    GenericSyncClient.raise_for_status(response)  # type: ignore[no-untyped-call]


def _readable(documents: Iterable[object]) -> Iterator[Operation]:
    """Those that can be read: one odd object must not keep the others from being seen."""
    for document in documents:
        try:
            yield Operation.parse(document)
        except UnreadableError:
            continue


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from filter(None, whole)
        if len(rest) > LINE_LIMIT:
            raise ValueError(f"an event of more than {LINE_LIMIT} bytes")


def _seen(line: bytes) -> Seen:
    event = msgspec.json.decode(line, type=_Event)
    if event.type == "ERROR":
        raise _told(msgspec.json.decode(event.object, type=_Status))
    version = msgspec.json.decode(event.object, type=_Labelled).metadata.resourceVersion
    if event.type == "BOOKMARK":
        return Seen(change=Change.MARK, version=version)
    try:
        operation = Operation.parse(msgspec.json.decode(event.object))
    except UnreadableError:
        return Seen(change=Change.MARK, version=version)
    change = Change.GONE if event.type == "DELETED" else Change.PUT
    return Seen(change=change, version=version, operation=operation)


def _refusal(error: httpx2.HTTPStatusError) -> ClusterError:
    response = error.response
    status = _Status(code=response.status_code)
    if isinstance(error, ApiError):
        said = error.status
        status = _Status(status.code, said.reason or "", said.message or "")
    wait = response.headers.get("Retry-After", "")
    return _told(status, float(wait) if wait.isdecimal() and len(wait) < 6 else 0.0)


_TRANSIENT = (408, 429, 500, 502, 503, 504)
_CAUSES = {
    401: ClusterCause.DENIED,
    403: ClusterCause.DENIED,
    409: ClusterCause.CONFLICT,
    410: ClusterCause.EXPIRED,
} | dict.fromkeys(_TRANSIENT, ClusterCause.UNREACHABLE)
_REMEDIES = {
    ClusterCause.DENIED: "check this host's credential, and that deploy/rbac.yaml is applied",
    ClusterCause.NO_KIND: "apply deploy/crd.yaml",
}


def _told(status: _Status, wait: float = 0.0) -> ClusterError:
    """A refusal by its code and, where one code means two things, by the server's words."""
    said = plain(redact(status.message))[:400] or f"status {status.code}"
    cause = _CAUSES.get(status.code, ClusterCause.REJECTED)
    if status.code == 404:
        # Only a path that no kind answers is refused without naming an object.
        is_object = f'{PLURAL}.{GROUP} "' in status.message
        cause = ClusterCause.GONE if is_object else ClusterCause.NO_KIND
    elif status.code == 400 and "field label not supported" in status.message:
        cause = ClusterCause.NO_FIELD
    brief = f"the Kubernetes API refuses: {said}"
    return ClusterError(cause, brief, remedy=_REMEDIES.get(cause, ""), wait=wait)


def _why(error: BaseException) -> str:
    return plain(redact(str(error)))[:400] or type(error).__name__
