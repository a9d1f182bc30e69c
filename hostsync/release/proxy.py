"""The proxy that stands before a URL, from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`.

It is chosen here rather than in the HTTP library, so that a proxy which cannot be used, or whose
password is in its URL, is told by host and port alone.
"""

from __future__ import annotations

import re
from urllib.request import getproxies, proxy_bypass

import msgspec

from hostsync.errors import FetchCause
from hostsync.redaction import plain, redact
from hostsync.release.setback import Setback
from hostsync.release.url import DownloadUrl

_PROXY = re.compile(
    r"(?:(?P<scheme>https?)://)?(?:[^@/\s]*@)?(?P<host>[^@/\s?#]+)/?", re.IGNORECASE
)


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy from the environment; only its host and port are for people."""

    shown: str
    secret: str
    is_encrypted: bool


def proxy_for(url: DownloadUrl) -> Proxy | None:
    """The proxy that the environment sets before `url`; None where NO_PROXY exempts its host.

    Raises Setback, which repeats nothing of it, for one that is not an HTTP proxy.
    """
    proxies = getproxies()
    text = proxies.get(url.scheme) or proxies.get("all") or ""
    name = url.host.strip("[]") if url.host.startswith("[") else url.authority
    if not text or proxy_bypass(name):
        return None
    match = _PROXY.fullmatch(text)
    if not match:
        why = f"the proxy that {url.scheme.upper()}_PROXY or ALL_PROXY names is no HTTP proxy"
        raise Setback(FetchCause.PROXY, why, remedy="set it to http://HOST:PORT")
    scheme = (match["scheme"] or "http").lower()
    return Proxy(
        shown=plain(redact(match["host"])),
        secret=text if match["scheme"] else f"http://{text}",
        is_encrypted=scheme == "https",
    )
