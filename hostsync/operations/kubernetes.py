"""`cluster.Cluster` by lightkube: the one door to the Kubernetes API.

Facts it rests on:
- lightkube's watch neither asks for bookmarks nor limits how long it waits for a byte.
- A real server ends a watch after `timeoutSeconds`; a broken network never does, so reading stops
  a little later by itself.
"""

from __future__ import annotations

import functools
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError, NotReadyError
from lightkube.core.generic_client import BasicRequest, GenericSyncClient
from lightkube.generic_resource import create_global_resource

from hostsync.errors import ClusterCause, ClusterError
from hostsync.membership import SERVICE_ACCOUNT
from hostsync.operations.answers import Labelled, lines, readable, refusal, seen, why
from hostsync.operations.cluster import Seen
from hostsync.operations.operation import GROUP, KIND, PLURAL, VERSION, Operation
from hostsync.operations.plugin import Plugin, PluginAuth
from hostsync.redaction import plain, redact

PAGE = 100
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 20.0
"""How long after its end a watch may stay silent before it is taken for broken."""
FIELD_MANAGER = "hostsync"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class KubernetesCluster:
    """`cluster.Cluster` with the credential of a kubeconfig, or of the pod this runs in.

    Opens at first use and, after a refused credential, anew at the next: files rotate. Every verb
    may be called from any thread.
    """

    def __init__(
        self, kubeconfig: Path | None, release: Path | None, account: Path = SERVICE_ACCOUNT
    ) -> None:
        self._where = kubeconfig or account
        self._read = KubeConfig.from_file if kubeconfig else KubeConfig.from_service_account
        self._release = release
        self._lock = threading.Lock()
        self._open: _Client | None = None

    def close(self) -> None:
        """Close the connections, once nobody is asking any more; the next request opens anew."""
        self._retire(self._open)

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        """See `Cluster.list`."""
        with self._client() as client:
            request = client.prepare_request(
                "list",
                res=_resource(),
                params={"limit": str(PAGE), "fieldSelector": field_selector or None},
            )
            found = client.list(request)
            operations = tuple(readable(found))
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
                if not response.is_success:
                    response.read()
                client.raise_for_status(response)
                for line in lines(response.iter_bytes()):
                    yield seen(line)
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
            client.raise_for_status(client.send(client.build_adapter_request(asked)))

    def node_labels(self, node: str) -> Mapping[str, str]:
        """See `Cluster.node_labels`."""
        with self._client() as client:
            asked = BasicRequest(method="GET", url=f"api/v1/nodes/{node}")
            response = client.send(client.build_adapter_request(asked))
            if response.status_code == httpx2.codes.NOT_FOUND:
                return {}
            client.raise_for_status(response)
            return msgspec.json.decode(response.content, type=Labelled).metadata.labels

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
    def _client(self) -> Iterator[_Client]:
        """The open client; what goes wrong with it is told as ClusterError."""
        client = self._take()
        try:
            yield client
        except ClusterError as error:
            trouble = error
        except ConfigError as error:
            # The file of a pod's token is read with each request.
            trouble = _unusable(self._where, str(error))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            trouble = ClusterError(
                ClusterCause.UNREACHABLE, f"the Kubernetes API does not answer: {why(error)}"
            )
        except (*_SENSELESS, LookupError, TypeError, ValueError) as error:
            brief = f"the Kubernetes API answered what cannot be read: {why(error)}"
            trouble = ClusterError(ClusterCause.REJECTED, brief)
        else:
            return
        finally:
            self._give_back(client)
        if trouble.cause in (ClusterCause.DENIED, ClusterCause.CREDENTIAL):
            self._retire(client)
        raise trouble

    def _take(self) -> _Client:
        with self._lock:
            if self._open is None:
                self._open = _connected(self._read, self._where, self._release)
            self._open.users += 1
            return self._open

    def _give_back(self, client: _Client) -> None:
        """Close a client that was retired once its last user is done."""
        with self._lock:
            client.users -= 1
            if client is not self._open and not client.users:
                client.close()

    def _retire(self, client: _Client | None) -> None:
        """Use another client from now on."""
        with self._lock:
            if client is None or client is not self._open:
                return
            self._open = None
            if not client.users:
                client.close()


_SENSELESS = (msgspec.DecodeError, NotReadyError, RecursionError)
"""lightkube is not ready to name the version of a list that came without one."""


class _Authenticated(ConnectionParams):
    """lightkube's parameters with our own way to get a token."""

    auth: PluginAuth | None = None

    def httpx_params(self, config: SingleConfig) -> dict[str, Any]:
        params: dict[str, Any] = super().httpx_params(config)
        return params | ({"auth": self.auth} if self.auth else {})


class _Client(GenericSyncClient):
    """lightkube's client, and how many use it; what is refused is raised as ClusterError."""

    users = 0

    def close(self) -> None:
        super().close()  # type: ignore[no-untyped-call]

    @staticmethod
    def raise_for_status(resp: httpx2.Response) -> None:
        if not resp.is_success:
            raise refusal(resp)


@functools.cache
def _resource() -> Any:
    return create_global_resource(GROUP, VERSION, KIND, PLURAL)


def _connected(read: Callable[[Path], KubeConfig], where: Path, release: Path | None) -> _Client:
    try:
        config = read(where).get()
        if config is None or config.user is None:
            raise ConfigError("its current context names no user")
        _check(where, config)
        params = _Authenticated(timeout=httpx2.Timeout(CONNECT_SECONDS))
        stanza = config.user.exec
        if stanza is not None:
            variables = {each.name: each.value for each in stanza.env or ()}
            argv = (stanza.command, *(stanza.args or ()))
            plugin = Plugin(version=stanza.apiVersion, argv=argv, environment=variables)
            params.auth = PluginAuth(plugin.running(release))
            config.user.exec = None
        return _Client(params, config)
    except ConfigError as error:
        said = str(error)
    except Exception as error:  # noqa: BLE001 - whatever YAML, TLS and lightkube make of any file
        said = type(error).__name__
    raise _unusable(where, said)


def _check(where: Path, config: SingleConfig) -> None:
    """Root runs what this file names and tells its secrets to the server in it: neither is open."""
    status = where.stat()
    # A pod's account is a directory with the sticky bit, which kubelet mounts for it.
    is_file = stat.S_ISREG(status.st_mode)
    if is_file and (status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022):
        raise ConfigError(f"others may write it (mode {stat.S_IMODE(status.st_mode):04o})")
    if not config.cluster.server.startswith("https://"):
        raise ConfigError("its server is not https://")
    if config.cluster.insecure:
        raise ConfigError("insecure-skip-tls-verify would trust any server")
    stanza = config.user.exec if config.user else None
    if stanza is not None and not Path(stanza.command).is_absolute():
        raise ConfigError("the command of its exec plugin is no absolute path")


def _unusable(where: Path, said: str) -> ClusterError:
    brief = f"cannot use {where}: {plain(redact(said))[:400]}"
    return ClusterError(ClusterCause.CREDENTIAL, brief, remedy=_REMEDY)


_REMEDY = "write one with `hostsync kubeconfig`, or mend operations.kubeconfig"
