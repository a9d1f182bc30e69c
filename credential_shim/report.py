"""One line about a run for syslog or the journal, when that was asked for.

It says which source, whether the cache served, how long it took, where tokens come from, and the
cause of a failure: what is on stderr already, and never a secret. It goes out after the token, in
one datagram that is dropped rather than waited for: no logger's trouble costs a token.
"""

import os
import socket
import time

from credential_shim import stdio
from credential_shim.errors import RememberedError, ShimError

SYSLOG, JOURNAL = "syslog", "journal"
PLACES = {SYSLOG: "/dev/log", JOURNAL: "/run/systemd/journal/socket"}

_LOCAL_PATH = "/metadata/identity/oauth2/token"
_TENANT_PATH = "/oauth2/v2.0/token"
_DAEMON_FACILITY = 3 << 3
_ERROR, _INFO = 3, 6
_LONGEST = 1500
"""Characters of a line: a datagram to either socket takes more."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from credential_shim.arguments import Request
    from credential_shim.identity import Identity


def reported(request: "Request", command: str, started: float, serve: "Callable[[], int]") -> int:
    """Return what ``serve`` does, or raise what it raises, and log one line about it."""
    try:
        code = serve()
    except ShimError as error:
        if isinstance(error, RememberedError):
            request.facts["cache"] = "failure"
        _log(request, command, started, (error.exit_code, error.message))
        raise
    _log(request, command, started, (code, ""))
    return code


def endpoint_of(identity: "Identity") -> str:
    """Return scheme, host and path of where tokens are asked for."""
    if identity.tenant is not None:
        return f"{identity.tenant}{_TENANT_PATH}"
    return f"http://{identity.endpoint}{_LOCAL_PATH}"


def _log(request: "Request", command: str, started: float, ended: tuple[int, str]) -> None:
    code, cause = ended
    fields = {
        "command": command,
        "source": request.identity.login,
        "cache": request.facts.get("cache", "none"),
        "duration_ms": f"{(time.monotonic() - started) * 1000:.0f}",
        "endpoint": endpoint_of(request.identity),
        "exit": str(code),
    }
    if cause:
        fields["cause"] = cause
    send(request.log, fields)


def send(log: str, fields: dict[str, str], places: dict[str, str] = PLACES) -> None:
    """Send one entry to ``log``; whatever goes wrong is nobody's concern."""
    severity = _ERROR if fields["exit"] != "0" else _INFO
    line = _printable(" ".join(f"{name}={_quoted(value)}" for name, value in fields.items()))
    if log == JOURNAL:
        entry = {"MESSAGE": line, "PRIORITY": str(severity), "SYSLOG_IDENTIFIER": stdio.PROGRAM}
        entry |= {f"HOSTSYNC_{name.upper()}": _printable(text) for name, text in fields.items()}
        data = "".join(f"{name}={text}\n" for name, text in entry.items())
    else:
        data = f"<{_DAEMON_FACILITY | severity}>{stdio.PROGRAM}[{os.getpid()}]: {line}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as logger:
            logger.setblocking(False)
            logger.sendto(data.encode("utf-8", "replace"), places[log])
    except OSError:
        return


def _quoted(value: str) -> str:
    """A value with spaces or quotes in quotes, so that the line can be taken apart again."""
    if " " not in value and '"' not in value:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_LONGEST])
