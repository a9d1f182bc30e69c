"""One GET over the network: redirects by hand, one deadline over all, every failure in words.

Facts this rests on: httpx has a time-out for each wait and none for the whole, so a server that
sends a header byte now and then holds it for ever; a timer therefore shuts the socket down when
time is up, which ends whatever read is waiting on it. httpx logs whole URLs at level INFO and
httpcore whole headers at DEBUG, redirect targets included. Texts of their exceptions may quote what
the server sent. So their loggers are raised to WARNING while this module is in use, and their
exceptions are read, not chained. A client lives for one request: no cookie, connection or
credential outlives it.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Self

from hostsync._version import VERSION
from hostsync.errors import FetchCause
from hostsync.release.certificates import NoAuthoritiesError, tls_context
from hostsync.release.proxy import Proxy, proxy_for
from hostsync.release.setback import TRANSIENT, Setback, Terms, tell
from hostsync.release.url import DownloadUrl

if TYPE_CHECKING:
    import httpx

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RETRY_AFTER_LIMIT = 60.0


Read = Callable[["httpx.Response"], None]


def get(
    url: DownloadUrl, headers: Mapping[str, str], terms: Terms, seconds: float, read: Read
) -> None:
    """Ask for `url`, follow where it leads, and have `read` take the answer that is no redirect.

    `seconds` are left for all of it. Raises Setback, and whatever else `read` raises.
    """
    with _Cutoff(seconds) as cutoff:
        for _ in range(terms.redirects + 1):
            check_transport(url, terms.insecure_hosts)
            onward = _hop(url, headers, terms, cutoff, read)
            if onward is None:
                return
            if url.is_encrypted and not onward.is_encrypted:
                raise Setback(FetchCause.REDIRECT, f"it leads to {onward}, in clear text")
            url = onward
    raise Setback(FetchCause.REDIRECT, f"it leads on more than {terms.redirects} times")


def check_transport(url: DownloadUrl, insecure_hosts: frozenset[str]) -> None:
    """Raise Setback for clear text, unless the configuration names the host."""
    if not url.is_encrypted and url.host not in insecure_hosts:
        why = f"{url.host} would be asked in clear text"
        remedy = "use https, or name a host on this machine in download.insecure_hosts"
        raise Setback(FetchCause.PROTOCOL, why, remedy=remedy)


def _hop(
    url: DownloadUrl, headers: Mapping[str, str], terms: Terms, cutoff: _Cutoff, read: Read
) -> DownloadUrl | None:
    import httpx

    _quieten()
    proxy = proxy_for(url)
    try:
        with _client(url, proxy, terms, cutoff) as client:
            request = client.build_request(
                "GET",
                url.reveal(),
                headers={**_HEADERS, **headers},
                extensions={"trace": cutoff.note},
            )
            with closing(client.send(request, stream=True)) as response:
                if response.status_code in _REDIRECTS:
                    return _onward(url, response.headers.get("location", ""))
                _check_status(response)
                read(response)
                return None
    except (httpx.HTTPError, httpx.InvalidURL, NoAuthoritiesError, OSError) as error:
        setback = cutoff.setback() or tell(error, url, proxy.shown if proxy else None, terms)
    # Raised out here, where the foreign exception is no longer its context.
    raise setback


_HEADERS = {"user-agent": f"hostsync/{VERSION}", "accept": "*/*", "accept-encoding": "identity"}


def _client(url: DownloadUrl, proxy: Proxy | None, terms: Terms, cutoff: _Cutoff) -> httpx.Client:
    import httpx

    left = cutoff.left()
    stall, connect = min(terms.stall_seconds, left), min(terms.connect_seconds, left)
    is_encrypted = url.is_encrypted or (proxy is not None and proxy.is_encrypted)
    # Reading the authorities takes a tenth of a second; where none is needed, none is trusted.
    context = tls_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    through = None
    if proxy:
        to_proxy = context if proxy.is_encrypted else None
        through = httpx.Proxy(proxy.secret, ssl_context=to_proxy)
    timeout = httpx.Timeout(stall, connect=connect)
    return httpx.Client(verify=context, proxy=through, trust_env=False, timeout=timeout)


def _onward(url: DownloadUrl, location: str) -> DownloadUrl:
    try:
        if not location:
            raise ValueError("it names none")
        return url.redirected(location)
    except ValueError as error:
        why = f"{url.host} leads on to a place that is not taken: {error}"
    raise Setback(FetchCause.REDIRECT, why)


def _check_status(response: httpx.Response) -> None:
    """Pass on 200 and 206, and 416, which answers a resumption and no more."""
    status = response.status_code
    if status in {200, 206, 416}:
        return
    remedy = {
        401: "it asks for credentials: use a signed URL that is still valid",
        403: "check that the URL is right and that its signature has not expired",
        404: "check the URL",
        410: "check the URL",
    }.get(status, "")
    wait = response.headers.get("retry-after", "")
    raise Setback(
        FetchCause.STATUS,
        f"the server answered with status {status}",
        remedy=remedy,
        again=status in TRANSIENT,
        wait=min(float(wait[:9]), _RETRY_AFTER_LIMIT) if re.fullmatch("[0-9]+", wait) else 0.0,
    )


def _quieten() -> None:
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Cutoff:
    """Shuts the connection down when the time is up, whatever is waiting on it."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_over = seconds <= 0
        self._timer = threading.Timer(max(seconds, 0), self._cut)
        self._timer.daemon = True
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._socket = None

    def left(self) -> float:
        """An upper bound for any single wait, in seconds."""
        return max(self._seconds, 0.001)

    def setback(self) -> Setback | None:
        """That time is up, if it is."""
        why = "the download takes longer than it may in all"
        return Setback(FetchCause.TOO_SLOW, why) if self._is_over else None

    def note(self, event: str, info: Mapping[str, object]) -> None:
        """Remember the newest socket; called by httpcore, see its `trace` extension."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = info["return_value"]
            with self._lock:
                self._socket = stream.get_extra_info("socket")  # type: ignore[attr-defined]
                if self._is_over:
                    self._shut()

    def _cut(self) -> None:
        with self._lock:
            self._is_over = True
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # The plain method: that of a TLS socket would take its session from the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
