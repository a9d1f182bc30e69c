"""Where a candidate is ordered from: a path, or a URL whose query nobody gets to see.

A URL is parsed once, by rules narrower than any library's, so that two readers cannot disagree
on its host. It is shown as `scheme://host/path`; a query may carry a signature and is a secret.
No message here repeats what was given: it may be that secret, mistyped.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urljoin

import msgspec

URL_LIMIT = 8192
"""A URL longer than this many characters is not one."""

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?]*)?(?P<query>\?.*)?",
    re.IGNORECASE,
)
_CHARACTERS = re.compile(r"[!$-;=?-\[\]_a-z~]+", re.IGNORECASE)
"""Printable ASCII that may stand in a URL, without quotes, backslash, `#` and the like."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE = re.compile(r"file://(?:localhost)?(/[^?#]*)", re.IGNORECASE)
_PORTS = {"https": 443, "http": 80}


class DownloadUrl(msgspec.Struct, frozen=True, kw_only=True):
    """An `https` or `http` URL without userinfo and fragment; as text it lacks its query."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URL; raises ValueError, saying what is wrong without repeating any of it."""
        if len(text) > URL_LIMIT:
            raise ValueError(f"a URL has at most {URL_LIMIT} characters")
        if "#" in text:
            raise ValueError("a download URL has no fragment ('#')")
        if not _CHARACTERS.fullmatch(text):
            raise ValueError("a URL is printable ASCII without spaces, quotes and backslashes")
        if "@" in text.partition("://")[2].partition("/")[0].partition("?")[0]:
            raise ValueError("a download URL holds no user and no password ('@')")
        match = _URL.fullmatch(text)
        if not match:
            raise ValueError("a download URL is https://HOST[:PORT]/PATH[?QUERY]")
        scheme, host = match["scheme"].lower(), match["host"].lower()
        port = int(match["port"] or _PORTS[scheme])
        if not 0 < port < 1 << 16:
            raise ValueError("the port of a URL is between 1 and 65535")
        return cls(
            scheme=scheme,
            host=_checked_host(host),
            port=port,
            path=match["path"] or "/",
            query=match["query"] or "",
        )

    def redirected(self, location: str) -> DownloadUrl:
        """Where an answer from here leads on to; raises ValueError as `parse` does."""
        return DownloadUrl.parse(urljoin(self.reveal(), location))

    def beside(self, suffix: str) -> DownloadUrl:
        """The URL of a file that lies beside this one and has `suffix` after its name."""
        return DownloadUrl(
            scheme=self.scheme,
            host=self.host,
            port=self.port,
            path=self.path + suffix,
            query=self.query,
        )

    def reveal(self) -> str:
        """All of it, query included: for the wire, never for people."""
        return f"{self}{self.query}"

    @property
    def is_encrypted(self) -> bool:
        """Whether it is `https`."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The host, with its port where that is not the scheme's own."""
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


Place = Path | DownloadUrl
"""Where a candidate is, as it was ordered."""


def parse_place(text: str) -> Place:
    """Read what an order names: a path, `file://`, `https://` or `http://`; raises ValueError."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    match scheme[0].lower():
        case "https://" | "http://":
            return DownloadUrl.parse(text)
        case "file://":
            return _local(text)
        case _:
            raise ValueError("a candidate is a path, or a URL with https:// or file://")


def _local(text: str) -> Path:
    match = _FILE.fullmatch(text)
    path = unquote(match[1], errors="strict") if match else "\0"
    if "\0" in path:
        raise ValueError("a file URL is file:///ABSOLUTE/PATH, of this host")
    return Path(path)


def _checked_host(host: str) -> str:
    try:
        if host.startswith("["):
            return f"[{IPv6Address(host[1:-1])}]"
    except ValueError:
        raise ValueError("the IPv6 address of the URL is none") from None
    if host.startswith((".", "-")) or ".." in host:
        raise ValueError("the host of the URL is no name")
    return host
