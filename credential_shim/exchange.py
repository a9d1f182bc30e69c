"""One HTTP/1.1 exchange with an identity endpoint, read strictly and within limits.

Local identity endpoints are a literal address away and speak plain HTTP; a full client would cost
more time to import than the exchange takes, follow redirects, and look for proxies in the
environment. None of that exists here: such a connection always goes to the endpoint itself. (The
way to Entra, which does know proxies, is ``tls``.)
"""

import socket

from credential_shim.errors import MalformedError, UnreachableError
from credential_shim.identity import Endpoint

CONNECT_SECONDS = 2.0
HEAD_LIMIT = 16 * 1024
BODY_LIMIT = 64 * 1024
_CHUNK_LINE_LIMIT = 256
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from credential_shim.ports import Clock


class Answer:
    """A complete answer; header names are lower-case, a repeated header keeps its last value."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status: Final = status
        self.headers: Final = headers
        self.body: Final = body


class DirectTransport:
    """Exchanges over a TCP connection of their own, never through a proxy."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock

    def get(
        self, endpoint: Endpoint, target: str, headers: dict[str, str], seconds: float
    ) -> Answer:
        """See ``ports.Transport.get``."""
        until = self._clock.monotonic() + seconds
        lines = [f"GET {target} HTTP/1.1", f"Host: {_host_of(endpoint)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            with self._connect(endpoint, seconds) as connection:
                stream = Stream(connection, self._clock, until)
                connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
                return read_answer(stream)
        except TimeoutError as error:
            raise UnreachableError(f"identity endpoint {endpoint} timed out", tries=99) from error
        except OSError as error:
            # Refused or unreachable is often a service that is starting; a few tries will do.
            raise UnreachableError(
                f"identity endpoint {endpoint} is unreachable: {error.strerror or 'no route'}",
                tries=3,
            ) from error

    def _connect(self, endpoint: Endpoint, seconds: float) -> socket.socket:
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(max(0.01, min(CONNECT_SECONDS, seconds)))
            connection.connect((endpoint.host, endpoint.port))
        except BaseException:
            connection.close()
            raise
        return connection


class Stream:
    """Bytes of a connection, by line or by count, until one common deadline."""

    def __init__(self, connection: socket.socket, clock: "Clock", until: float) -> None:
        self._connection = connection
        self._clock = clock
        self._until = until
        self._buffer = b""

    def line(self, limit: int) -> bytes:
        """Return the next line without its end; raises MalformedError beyond ``limit`` bytes."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > limit:
                raise MalformedError("the identity endpoint's answer has an overlong line")
            self._require_more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.removesuffix(b"\r")

    def exactly(self, count: int) -> bytes:
        """Return the next ``count`` bytes; raises UnreachableError where they end before."""
        while len(self._buffer) < count:
            self._require_more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def to_end(self, limit: int) -> bytes:
        """Return the bytes up to the end; raises MalformedError beyond ``limit``."""
        while self._fill():
            if len(self._buffer) > limit:
                raise _too_long()
        return self._buffer

    def _require_more(self) -> None:
        if not self._fill():
            raise UnreachableError("the identity endpoint closed before its answer's end", tries=3)

    def _fill(self) -> bool:
        remaining = self._until - self._clock.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining)
        data = self._connection.recv(16 * 1024)
        self._buffer += data
        return bool(data)


def _host_of(endpoint: Endpoint) -> str:
    return str(endpoint).removesuffix(":80") if endpoint.port == 80 else str(endpoint)


def quote(text: str) -> str:
    """Return ``text`` percent-encoded for a query or a form (RFC 3986 §2.3), UTF-8 within."""
    return "".join(
        char if char in _UNRESERVED else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )


def read_answer(stream: Stream) -> Answer:
    """Read one complete answer.

    Raises UnreachableError where it ends early, MalformedError where it is not HTTP or exceeds a
    limit, TimeoutError, and OSError as the connection does.
    """
    version, _, rest = stream.line(HEAD_LIMIT).partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or len(code) != 3 or not code.isdigit():
        raise MalformedError("not an identity endpoint: the answer is not HTTP")
    headers = _read_headers(stream)
    return Answer(int(code), headers, _read_body(stream, headers))


def _read_headers(stream: Stream) -> dict[str, str]:
    headers: dict[str, str] = {}
    left = HEAD_LIMIT
    while line := stream.line(left):
        left -= len(line)
        name, colon, value = line.partition(b":")
        if left <= 0 or not colon or not name or name.strip() != name:
            raise MalformedError("the identity endpoint's answer has malformed headers")
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        if key in ("content-length", "transfer-encoding") and headers.get(key, text) != text:
            raise MalformedError("the identity endpoint's answer contradicts itself on its length")
        headers[key] = text
    return headers


def _read_body(stream: Stream, headers: dict[str, str]) -> bytes:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise MalformedError("the identity endpoint's answer has an unknown transfer coding")
        return _read_chunks(stream)
    if length is None:
        return stream.to_end(BODY_LIMIT)
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise MalformedError("the identity endpoint's answer has a malformed length")
    if int(length) > BODY_LIMIT:
        raise _too_long()
    return stream.exactly(int(length))


def _read_chunks(stream: Stream) -> bytes:
    body = b""
    while True:
        size = stream.line(_CHUNK_LINE_LIMIT).partition(b";")[0].strip()
        if not size or len(size) > 8 or size.strip(b"0123456789abcdefABCDEF"):
            raise MalformedError("the identity endpoint's answer has a malformed chunk")
        count = int(size, 16)
        if count == 0:
            return body
        if len(body) + count > BODY_LIMIT:
            raise _too_long()
        body += stream.exactly(count)
        if stream.line(_CHUNK_LINE_LIMIT):
            raise MalformedError("the identity endpoint's answer has a malformed chunk")


def _too_long() -> MalformedError:
    return MalformedError(f"the identity endpoint's answer exceeds {BODY_LIMIT} bytes")
