"""The daemon's own credential for the API, when a kubeconfig names an exec plugin.

Facts it rests on: lightkube runs plugins without a time-out, without KUBERNETES_EXEC_INFO and not
for client.authentication.k8s.io/v1, so this is done here. The plugin that is hostsync's own is run
from the release this process runs from: the link that an order switches must not decide whether
the daemon can tell how the order ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import msgspec

from hostsync.errors import ClusterCause, ClusterError
from hostsync.redaction import plain, redact

PLUGIN_SECONDS = 15.0
"""The shim's own deadline is 8 s; this only ends one that ignores it."""
PLUGIN_NAME = "hostsync-credential"
OUTPUT_LIMIT = 256 << 10
SPARE_SECONDS = 10.0
"""A token is asked for anew so long before it ends."""

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_TOKEN = re.compile(r"[!-~]+")


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """An exec stanza of a kubeconfig: what is run, with what added to the environment."""

    version: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)

    def running(self, release: Path | None) -> Plugin:
        """The same, from `release` where the command is hostsync's own."""
        if release is None or Path(self.argv[0]).name != PLUGIN_NAME:
            return self
        argv = (str(release / "bin" / PLUGIN_NAME), *self.argv[1:])
        return msgspec.structs.replace(self, argv=argv)


class _Status(msgspec.Struct):
    token: str = ""
    expirationTimestamp: str | None = None  # noqa: N815 - the API's word


class _Answer(msgspec.Struct):
    apiVersion: str  # noqa: N815
    kind: str
    status: _Status


class Token(msgspec.Struct, frozen=True):
    """A bearer token; `ends` in seconds since the epoch, None when that was not said."""

    text: str
    ends: float | None

    def serves(self, now: float) -> bool:
        """Whether it can be sent at that time."""
        return self.ends is None or now < self.ends - SPARE_SECONDS

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ends={self.ends!r})"


class PluginAuth(httpx2.Auth):
    """Sends the plugin's token; after a 401 asks the plugin once more and tries again."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._token: Token | None = None

    def sync_auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """See httpx's Auth; raises ClusterError when there is no token to send."""
        token = self._token
        if token is None or not token.serves(time.time()):
            token = self._token = ask(self._plugin)
        request.headers["Authorization"] = f"Bearer {token.text}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            token = self._token = ask(self._plugin)
            request.headers["Authorization"] = f"Bearer {token.text}"
            yield request


def ask(plugin: Plugin, seconds: float = PLUGIN_SECONDS) -> Token:
    """Run a plugin as client-go would and return its token.

    Contract: client.authentication.k8s.io. Raises ClusterError (credential), whose text has the
    last line the plugin said and never what it printed.
    """
    if plugin.version not in _VERSIONS:
        raise _useless(plugin, f"the kubeconfig asks for {plugin.version}, known are {_VERSIONS}")
    info = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": {"interactive": False}}
    told = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    status, out, err = _run(plugin, os.environ | dict(plugin.environment) | told, seconds)
    if status is None:
        raise _useless(plugin, f"it did not end within {seconds:g} s")
    if status != 0:
        raise _useless(plugin, f"it ended with status {status}: {_last_line(err)}")
    return _parse(plugin, out)


def _parse(plugin: Plugin, out: bytes) -> Token:
    try:
        answer = msgspec.json.decode(out, type=_Answer)
        is_ours = (answer.apiVersion, answer.kind) == (plugin.version, "ExecCredential")
        if len(out) > OUTPUT_LIMIT or not is_ours or not _TOKEN.fullmatch(answer.status.token):
            raise ValueError
        ends = answer.status.expirationTimestamp
        moment = datetime.fromisoformat(ends) if ends else None
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
    except (msgspec.DecodeError, ValueError):
        # What it printed may be a token all the same: none of it is repeated.
        trouble = f"it printed no ExecCredential of {plugin.version} with a token"
    else:
        return Token(answer.status.token, moment.timestamp() if moment else None)
    raise _useless(plugin, trouble)


def _run(
    plugin: Plugin, environment: Mapping[str, str], seconds: float
) -> tuple[int | None, bytes, bytes]:
    try:
        process = subprocess.Popen(
            plugin.argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _useless(plugin, f"it cannot be run: {error.strerror}") from error
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return None, b"", b""
    return process.returncode, out, err


def _last_line(err: bytes) -> str:
    lines = err[-4096:].decode(errors="replace").strip().splitlines()
    return plain(redact(lines[-1]))[:400] if lines else "it said nothing"


def _useless(plugin: Plugin, trouble: str) -> ClusterError:
    return ClusterError(
        ClusterCause.CREDENTIAL,
        f"no credential for the Kubernetes API from {plugin.argv[0]}: {trouble}",
        remedy=f"run `{PLUGIN_NAME} explain` with the same arguments",
    )
