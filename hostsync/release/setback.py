"""What went wrong on the way to a URL, in words of this project: foreign exceptions end here.

Texts of the HTTP library's exceptions may quote what a server or a proxy sent, and that may hold
a secret or an escape sequence; so what happened is read from the kind of an exception, and its
text only where it comes from OpenSSL or the kernel.
"""

from __future__ import annotations

import re
import socket
import ssl

import msgspec

from hostsync.errors import FetchCause
from hostsync.redaction import plain, redact
from hostsync.release.certificates import NoAuthoritiesError
from hostsync.release.url import DownloadUrl

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a download may take, in seconds and hops, and which hosts may be asked in clear text.

    `stall_seconds` is the longest wait for the next byte, `total_seconds` is for everything.
    """

    connect_seconds: float = 10.0
    stall_seconds: float = 30.0
    total_seconds: float = 600.0
    redirects: int = 5
    attempts: int = 5
    insecure_hosts: frozenset[str] = frozenset()


class Setback(Exception):
    """A request that failed, told without its URL: the door in `fetch` adds that.

    `again` says that the same may succeed later, at the earliest after `wait` seconds.
    """

    def __init__(
        self,
        cause: FetchCause,
        why: str,
        *,
        remedy: str = "",
        again: bool = False,
        wait: float = 0.0,
    ) -> None:
        super().__init__(why)
        self.cause = cause
        self.why = why
        self.remedy = remedy
        self.again = again
        self.wait = wait


def tell(error: Exception, url: DownloadUrl, proxy: str | None, terms: Terms) -> Setback:
    """What went wrong, said from the exception's kind and hardly ever from its text."""
    peer = f"the proxy {proxy}" if proxy else url.authority
    server = f"{url.authority} (through the proxy {proxy})" if proxy else url.authority
    match root := _root(error):
        case NoAuthoritiesError():
            return Setback(FetchCause.TLS, str(root), remedy="check SSL_CERT_FILE and SSL_CERT_DIR")
        case ssl.SSLCertVerificationError():
            why = f"the certificate of {server} is not trusted: {_verdict(root)}"
            remedy = "if a company's authority signed it, name that in SSL_CERT_FILE"
            return Setback(FetchCause.TLS, why, remedy=remedy)
        case ssl.SSLError():
            return Setback(FetchCause.TLS, f"the TLS connection to {server} failed", again=True)
        case socket.gaierror():
            why = f"the name of {peer} cannot be resolved"
            return Setback(FetchCause.DNS, why, remedy="check the name and DNS", again=True)
        case _:
            return _of_connection(error, peer, server, terms)


def _of_connection(error: Exception, peer: str, server: str, terms: Terms) -> Setback:
    import httpx

    match error:
        case httpx.ProxyError():
            return _refused_by_proxy(error, peer)
        case httpx.ConnectTimeout():
            why = f"{peer} did not answer within {terms.connect_seconds:g} s"
            return Setback(FetchCause.CONNECT, why, again=True)
        case httpx.TimeoutException():
            why = f"{server} sent nothing for {terms.stall_seconds:g} s"
            return Setback(FetchCause.STALLED, why, again=True)
        case httpx.ConnectError():
            why = f"{peer} cannot be reached: {_strerror(_root(error))}"
            return Setback(FetchCause.CONNECT, why, again=True)
        case httpx.RemoteProtocolError() | httpx.NetworkError() | OSError():
            why = f"{server} broke the connection off, or spoke no HTTP"
            return Setback(FetchCause.CUT_SHORT, why, again=True)
        case _:
            return Setback(FetchCause.PROTOCOL, f"{server} cannot be asked so")


def _refused_by_proxy(error: Exception, peer: str) -> Setback:
    status = re.match("[0-9]{3}", str(error))
    why = f"{peer} refused the connection" + (f" with status {status[0]}" if status else "")
    remedy = "check its credentials in HTTPS_PROXY" if status and status[0] == "407" else ""
    is_transient = bool(status) and int(str(status and status[0])) in TRANSIENT
    return Setback(FetchCause.PROXY, why, remedy=remedy, again=is_transient)


def _root(error: BaseException) -> BaseException:
    """The first exception of this module's world on the way down from what a library raised."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, (NoAuthoritiesError, OSError)):
            return below
        below = below.__cause__ or below.__context__
    return error


def _verdict(error: ssl.SSLCertVerificationError) -> str:
    return redact(plain(str(getattr(error, "verify_message", "") or "it does not verify")))


def _strerror(error: BaseException) -> str:
    return (isinstance(error, OSError) and error.strerror) or "no connection"
