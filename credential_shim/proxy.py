"""Which proxy, if any, stands before a host: HTTPS_PROXY and NO_PROXY as Go programs read them.

Only the way to Entra asks. Nothing here puts a proxy's address into a message with its password.
"""

from collections.abc import Mapping

from credential_shim.errors import UsageError

_VARIABLES = ("HTTPS_PROXY", "https_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Proxy:
    """An HTTP proxy, and the value of Proxy-Authorization, empty without one."""

    __slots__ = ("authorization", "host", "port")

    def __init__(self, host: str, port: int, authorization: str) -> None:
        self.host: Final = host
        self.port: Final = port
        self.authorization: Final = authorization

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def proxy_for(host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for ``host``; None for a direct connection.

    Loopback is never proxied. Raises UsageError, which names the variable and not its value.
    """
    name = next((name for name in _VARIABLES if environ.get(name)), None)
    if name is None or host == "localhost" or _is_loopback(host):
        return None
    exceptions = next((environ[name] for name in _EXCEPTIONS if environ.get(name)), "")
    if any(_matches(rule.strip().lower(), host, port) for rule in exceptions.split(",")):
        return None
    return _parse(name, environ[name])


def _parse(name: str, url: str) -> Proxy:
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise UsageError(f"{name} is not the address of a proxy") from error
    if parts.scheme != "http" or not host or not host.isascii() or not host.isprintable():
        raise UsageError(f"{name} must be http://HOST[:PORT]; other proxies are not supported")
    if parts.username is None:
        return Proxy(host, port, "")
    from base64 import b64encode

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, f"Basic {b64encode(pair.encode()).decode()}")


def _matches(rule: str, host: str, port: int) -> bool:
    """Say whether one entry of NO_PROXY covers ``host``: ``*``, a domain, an address, a network."""
    if rule == "*":
        return True
    if "/" in rule:
        return _is_within(host, rule)
    name, colon, wanted = rule.rpartition(":")
    if colon and wanted.isdecimal() and ":" not in name:
        if int(wanted[:9]) != port:
            return False
        rule = name
    if rule.startswith("."):
        return host.endswith(rule)
    rule = rule.removeprefix("*.")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_within(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
