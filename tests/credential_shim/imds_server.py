"""An instance metadata service on loopback: exact by default, misbehaving on request.

It answers as the real one does (numbers as strings, 400 without the Metadata header, for a second
selector, or for an unknown identity) and plays scripted answers first, one per request.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

TOKEN_PATH = "/metadata/identity/oauth2/token"
SELECTORS = ("client_id", "object_id", "msi_res_id")

JSON_TYPE = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as it arrived."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: str = ""


@dataclass(slots=True, kw_only=True)
class Script:
    """What the service knows, and how it is to misbehave next."""

    lifetime: float = 86400.0
    clock_offset: float = 0.0
    send_date: bool = True
    identities: dict[str, str] = field(default_factory=lambda: {"": "11111111-system"})
    """Selector value → client id; the empty selector is the system identity."""
    delay: float = 0.0
    answers: list[Callable[[Handler], None]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        service = self.server.service
        parts = urlsplit(self.path)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        scripted = service.record(Seen(path=parts.path, query=dict(pairs), headers=headers))
        if service.script.delay:
            time.sleep(service.script.delay)
        (scripted or answer_exactly)(self)
        self.close_connection = True

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a complete answer; no Date unless the script wants one."""
        self.send_response_only(status)
        script = self.server.service.script
        if script.send_date:
            now = time.time() + script.clock_offset
            self.send_header("Date", formatdate(now, usegmt=True))
        for name, value in {"Content-Type": JSON_TYPE, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    """The listening socket and its service."""

    daemon_threads = True
    request_queue_size = 128
    service: ImdsServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of the tests."""


class ImdsServer:
    """The service: start it with ``with``; ``url`` is what the shim is pointed at."""

    handler: type[Handler] = Handler

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = Server(("127.0.0.1", 0), self.handler)
        self._server.service = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Requests so far, in order of arrival."""
        with self._lock:
            return tuple(self._seen)

    def record(self, seen: Seen) -> Callable[[Handler], None] | None:
        """Note a request; return the scripted answer it is to get, if any."""
        with self._lock:
            self._seen.append(seen)
            return self.script.answers.pop(0) if self.script.answers else None

    def then(self, *answers: Callable[[Handler], None]) -> None:
        """Queue answers to the next requests."""
        with self._lock:
            self.script.answers.extend(answers)

    def hold(self, handler: Handler) -> None:
        """As an answer: send nothing until the service stops."""
        self._released.wait()

    def issued(self, number: int) -> str:
        """The token given to the ``number``-th request (from 1)."""
        return f"token.{self.port}.{number}"

    def stopped(self, seconds: float) -> bool:
        """Say whether the service is stopping, after at most ``seconds``."""
        return self._released.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def answer_exactly(handler: Handler) -> None:
    """The contract's answer to the request."""
    service = handler.server.service
    parts = urlsplit(handler.path)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.path != TOKEN_PATH:
        return handler.reply(404, b'{"error":"not_found"}')
    if handler.headers.get("Metadata") != "true":
        return refuse(400, "invalid_request", "Required metadata header not specified")(handler)
    selectors = [name for name in SELECTORS if name in query]
    if query.get("api-version") != "2018-02-01" or not query.get("resource"):
        return refuse(400, "invalid_request", "bad request")(handler)
    if len(selectors) > 1:
        return refuse(400, "invalid_request", "more than one selector")(handler)
    who = query[selectors[0]] if selectors else ""
    client_id = service.script.identities.get(who)
    if client_id is None:
        return refuse(400, "invalid_request", "Identity not found")(handler)
    return handler.reply(200, token_body(handler, client_id, query["resource"]))


def token_body(handler: Handler, client_id: str, resource: str) -> bytes:
    """The body of a 200: every number is a string."""
    service = handler.server.service
    script = service.script
    issuer_now = time.time() + script.clock_offset
    body = {
        "access_token": service.issued(len(service.seen)),
        "client_id": client_id,
        "expires_in": str(int(script.lifetime)),
        "expires_on": str(int(issuer_now + script.lifetime)),
        "ext_expires_in": str(int(script.lifetime)),
        "not_before": str(int(issuer_now) - 300),
        "resource": resource,
        "token_type": "Bearer",
    }
    return json.dumps(body).encode()


def refuse(
    status: int, error: str = "error", description: str = "", **headers: str
) -> Callable[[Handler], None]:
    """An error in the service's JSON form; header names with underscores for hyphens."""
    body = json.dumps({"error": error, "error_description": description}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(status, body, named)


def raw(data: bytes) -> Callable[[Handler], None]:
    """Exactly these bytes, then the end of the connection."""

    def send(handler: Handler) -> None:
        handler.wfile.write(data)

    return send


def page(status: int) -> Callable[[Handler], None]:
    """What a captive portal or a proxy sends."""
    body = b"<html><body>Sign in to continue</body></html>"
    return lambda handler: handler.reply(status, body, {"Content-Type": "text/html"})


def chunked(handler: Handler) -> None:
    """The exact answer in two chunks."""
    body = token_body(handler, "11111111-system", "x")
    half = len(body) // 2
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (body[:half], body[half:], b""):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
