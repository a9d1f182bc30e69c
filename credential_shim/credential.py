"""ExecCredential: what client-go asks for and what it accepts (client.authentication.k8s.io)."""

import json
import math
import time

from credential_shim.entries import Entry
from credential_shim.errors import MalformedError, UsageError
from credential_shim.tokens import Token

GROUP = "client.authentication.k8s.io"
API_VERSIONS = ("v1", "v1beta1")

MARGIN_SECONDS = 300.0
MARGIN_SHARE = 0.10
"""client-go uses a token until the very instant we name, so it is named a little early."""
REFRESH_SHARE = 0.75
"""Part of a token's lifetime after which a new one is asked for while the old one still works."""


def requested_version(exec_info: str) -> str:
    """Return the version asked for in KUBERNETES_EXEC_INFO; "v1" when a person runs the shim.

    Raises UsageError for a version that is not served, or a value that is not an ExecCredential.
    """
    if not exec_info:
        return "v1"
    try:
        value = json.loads(exec_info)
    except (ValueError, RecursionError) as error:
        raise UsageError("KUBERNETES_EXEC_INFO is not JSON") from error
    if not isinstance(value, dict) or value.get("kind") != "ExecCredential":
        raise UsageError("KUBERNETES_EXEC_INFO is not an ExecCredential object")
    group, _, version = str(value.get("apiVersion", "")).partition("/")
    if group != GROUP or version not in API_VERSIONS:
        raise UsageError(
            f"the apiVersion in KUBERNETES_EXEC_INFO is not served: "
            f"set apiVersion {GROUP}/v1 (or v1beta1) in the kubeconfig's exec section"
        )
    return version


def build_entry(token: Token, api_version: str, now: float, *, forced: bool) -> Entry:
    """Return the credential for ``token`` with all its times; raises MalformedError if too short.

    ``forced`` notes that a rejection made it necessary.
    """
    lifetime = token.expires - now
    margin = min(MARGIN_SECONDS, MARGIN_SHARE * lifetime)
    emitted = float(math.floor(token.expires - margin))
    if emitted <= now:
        raise MalformedError("the identity endpoint answered with a token about to expire")
    refresh = min(now + REFRESH_SHARE * lifetime, emitted)
    body = render(token.value, api_version, emitted)
    return Entry(body, times=(refresh, now, emitted, token.expires), forced=forced)


def body_for_outage(entry: Entry, api_version: str, now: float) -> bytes | None:
    """Return bytes to serve from ``entry`` while no new token can be had; None when it is over.

    Past the expiry that was named early, the token's real one is named.
    """
    if now < entry.emitted:
        return entry.body
    expires = float(math.floor(entry.expires))
    if expires <= now:
        return None
    return render(json.loads(entry.body)["status"]["token"], api_version, expires)


def render(token: str, api_version: str, expires: float) -> bytes:
    """Return the bytes for stdout: one object, no byte more."""
    value = {
        "kind": "ExecCredential",
        "apiVersion": f"{GROUP}/{api_version}",
        "spec": {"interactive": False},
        "status": {"expirationTimestamp": rfc3339(expires), "token": token},
    }
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def rfc3339(instant: float) -> str:
    """Return ``instant`` (epoch seconds, rounded down) in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.floor(instant)))
