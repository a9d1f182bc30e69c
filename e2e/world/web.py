"""HTTP/1.1 with keep-alive, one thread a connection, around services that are plain functions.

A service maps a Request to a Response and opens nothing; this module does the sockets, TLS, the
request log and the misconduct that tests ask for.
"""

import json
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from e2e.world.conduct import CUT, SILENT, Conduct, Instructions
from e2e.world.departures import Departures
from e2e.world.documents import Document, encode

IDLE_SECONDS = 60.0
HANG_UP_SECONDS = 5.0
BODY_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; header names are in lower case, of a repeated query key the last counts.

    `peer` is the common name of the client's certificate, if it showed one that TLS could verify.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One answer; `facts` go into the request log, `stream` (if any) follows as chunks.

    `leave` has a stream end soon; it may be called from any thread, and is once the client left.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Generator[bytes] | None = None
    leave: Callable[[], None] = lambda: None
    facts: Document = field(default_factory=dict)


Service: TypeAlias = Callable[[Request], Response]
# What socketserver calls a request; for TCP it is always a socket.
Accepted: TypeAlias = socket.socket | tuple[bytes, socket.socket]


def answer(status: int, document: Document, **facts: str | int) -> Response:
    """Return a JSON response; the keywords are for the request log only."""
    return Response(status=status, body=encode(document), facts=dict(facts))


class RequestLog:
    """One JSON line for each request answered, in the order of the answers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def add(self, entry: Document) -> None:
        """Append one line; it is in the file when this returns."""
        with self._lock, self._path.open("a") as log:
            log.write(json.dumps(entry) + "\n")


class Website(ThreadingHTTPServer):
    """A service bound to an address."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        service: Service,
        log: RequestLog,
        instructions: Instructions,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.service = service
        self.log = log
        self.instructions = instructions
        self._open: set[Accepted] = set()
        self._open_changed = threading.Condition()
        self.departures = Departures()
        super().__init__(address, _Exchange)
        if tls:
            # The handshake is left to the connection's own thread: a client that never speaks
            # must not stop the others from being accepted.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def server_bind(self) -> None:
        """Bind without the look-up of the host's own name, which nothing here could answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Accepted, client_address: object) -> None:
        """Hand a connection to a thread of its own."""
        with self._open_changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Accepted) -> None:
        """Close a connection; its thread is done with it."""
        super().shutdown_request(request)
        with self._open_changed:
            self._open.discard(request)
            self._open_changed.notify_all()

    def server_close(self) -> None:
        """Stop listening."""
        super().server_close()
        self.departures.close()

    def hang_up(self, release: Callable[[], None] = lambda: None) -> None:
        """Cut every connection, as a killed server does; return once their threads let go.

        `release` wakes those that wait for something other than their connection.
        """
        with self._open_changed:
            for connection in self._open:
                if isinstance(connection, socket.socket):
                    with suppress(OSError):
                        # Not SSLSocket's own, which would let another thread go on without TLS.
                        socket.socket.shutdown(connection, socket.SHUT_RDWR)
        release()
        self.settle()

    def settle(self) -> None:
        """Return once no connection is open, or after HANG_UP_SECONDS."""
        with self._open_changed:
            self._open_changed.wait_for(lambda: not self._open, HANG_UP_SECONDS)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away in the middle are ordinary here; everything else is logged."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError | ssl.SSLError):
            traceback.print_exc()


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "lab"
    sys_version = ""
    timeout = IDLE_SECONDS
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Website

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(IDLE_SECONDS)
            self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        arrived = time.time()
        request = self._read()
        conduct = self.server.instructions.next_for(request.path, request.method)
        if conduct.delay:
            time.sleep(conduct.delay)
        if conduct.drop:
            self.close_connection = True
            self._note(arrived, request, Response(status=0))
            return
        response = _as_told(conduct) if conduct.status else self.server.service(request)
        # The line is written first, so that whoever got the answer finds it in the log.
        self._note(arrived, request, response)
        self._write(request, response)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names the base class looks up

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """The request log says it all."""

    def _read(self) -> Request:
        url = urlsplit(self.path)
        return Request(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(),
            peer=_common_name(self.request),
        )

    def _body(self) -> bytes:
        # kubectl sends what it reads from a pipe in chunks.
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks())
        return self._exactly(int(self.headers.get("Content-Length") or 0), BODY_LIMIT)

    def _exactly(self, size: int, limit: int) -> bytes:
        if size > limit:
            raise ConnectionError("the body is over the limit")
        body = self.rfile.read(size)
        if len(body) < size:
            # Like a killed client's: nobody is left to hear an answer, and nothing was asked.
            raise ConnectionError("the client went before its body ended")
        return body

    def _chunks(self) -> Iterator[bytes]:
        left = BODY_LIMIT
        while size := int(self.rfile.readline(64).partition(b";")[0] or b"-1", 16):
            if size < 0:
                raise ConnectionError("the client went before its body ended")
            yield self._exactly(size, left)
            left -= size
            self.rfile.readline(64)
        while self.rfile.readline(4096).strip():
            pass

    def _write(self, request: Request, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.stream is None:
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        # Whoever waits for events wants to know at once that he is heard.
        self.wfile.flush()
        with closing(response.stream) as stream:
            self._send_chunks(request.path, stream, response.leave)

    def _send_chunks(self, path: str, stream: Iterator[bytes], leave: Callable[[], None]) -> None:
        with self.server.departures.watched(self.connection, leave):
            told = self._send_while_told(path, stream)
        if told == SILENT:
            self._await_farewell()
        self.close_connection = bool(told)

    def _send_while_told(self, path: str, stream: Iterator[bytes]) -> str:
        """Send what the stream has, up to an order to the contrary, which is returned."""
        for chunk in stream:
            line = b"%x\r\n%b\r\n" % (len(chunk), chunk)
            told = self.server.instructions.for_stream(path)
            if told:
                self.wfile.write(line[: len(line) // 2] if told == CUT else b"")
                return told
            self.wfile.write(line)
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        return ""

    def _await_farewell(self) -> None:
        self.connection.settimeout(None)
        with suppress(OSError):
            self.connection.recv(1)

    def _note(self, arrived: float, request: Request, response: Response) -> None:
        entry: Document = {
            "time": round(arrived, 3),
            "took": round(time.time() - arrived, 4),
            "verb": request.method,
            "path": request.path,
            "query": dict(request.query),
            "status": response.status,
            "agent": request.headers.get("user-agent", ""),
        }
        self.server.log.add({**entry, **response.facts})


def _common_name(connection: object) -> str:
    shown = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    # The value is {} for a client without a certificate.
    subject = shown.get("subject", ()) if shown else ()
    named = dict(pair for part in subject for pair in part if isinstance(pair, tuple))
    return str(named.get("commonName", ""))


def _as_told(conduct: Conduct) -> Response:
    headers = dict(conduct.headers)
    kind = headers.pop("Content-Type", "application/json")
    return Response(
        status=conduct.status, body=conduct.body.encode(), content_type=kind, headers=headers
    )
