"""A Kubernetes API server as far as authentication goes: TLS, bearer tokens, 401."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import trustme


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        accepted = self.server.api.accepts(token)
        value = {"kind": "Status", "apiVersion": "v1", "code": 200, "message": token}
        if not accepted:
            value = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "Unauthorized",
                "code": 401,
            }
        body = json.dumps(value).encode()
        self.send_response(200 if accepted else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    """The listening socket."""

    daemon_threads = True
    api: ApiServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of the tests."""


class ApiServer:
    """Start it with ``with``; it accepts every token that was not revoked."""

    def __init__(self, directory: Path) -> None:
        self._revoked: set[str] = set()
        self._tokens: list[str] = []
        self._lock = threading.Lock()
        self.authority = directory / "ca.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.api = self
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_port}"

    @property
    def tokens(self) -> tuple[str, ...]:
        """Bearer tokens seen, in order."""
        with self._lock:
            return tuple(self._tokens)

    def revoke(self, token: str) -> None:
        """Answer 401 to this token from now on."""
        with self._lock:
            self._revoked.add(token)

    def accepts(self, token: str) -> bool:
        with self._lock:
            self._tokens.append(token)
            return bool(token) and token not in self._revoked

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
