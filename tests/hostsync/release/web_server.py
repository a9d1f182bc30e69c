"""Servers on loopback that do what a test tells them, byte by byte: HTTP, TLS, and a proxy."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it arrived; header names in lower case."""

    line: str
    headers: dict[str, str]

    @property
    def start(self) -> int:
        """The first byte that a Range asks for."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))


Answer = Callable[[Asked, socket.socket], None]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """An ordinary answer; `_` in a header's name stands for `-`."""
    return raw(head(status, {"content-length": str(len(body)), **_named(headers)}) + body)


def redirect(location: str, status: int = 302) -> Answer:
    return answer(status, b"", location=location)


def raw(data: bytes) -> Answer:
    def act(_asked: Asked, connection: socket.socket) -> None:
        connection.sendall(data)

    return act


def whole(body: bytes, *, tag: str = '"one"', cut: int | None = None) -> Answer:
    """The object, or the rest that is asked for; broken off after `cut` of its bytes."""

    def act(asked: Asked, connection: socket.socket) -> None:
        is_rest = "range" in asked.headers and asked.headers.get("if-range") == tag
        start = asked.start if is_rest else 0
        headers = {"content-length": str(len(body) - start), "etag": tag}
        if is_rest:
            headers["content-range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        connection.sendall(head(206 if is_rest else 200, headers) + body[start:cut])

    return act


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{key}: {value}" for key, value in headers.items())]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode()


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "-"): value for key, value in headers.items()}


@dataclass(slots=True)
class Server:
    """Gives its answers one after the other, the last for ever; `asked` is what it was asked."""

    answers: list[Answer]
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    has_answered: threading.Event = field(default_factory=threading.Event)
    port: int = field(init=False)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = self._listener.getsockname()[1]

    def url(self, path: str = "/agent.tar.gz", host: str = "127.0.0.1") -> str:
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
            assert not thread.is_alive()
        self._listener.close()

    def _start(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        with connection, suppress(OSError):
            if self.tls is None:
                self._answer(connection)
                return
            with self.tls.wrap_socket(connection, server_side=True) as secured:
                self._answer(secured)

    def _answer(self, connection: socket.socket) -> None:
        asked = read_request(connection)
        if asked is None:
            return
        self.asked.append(asked)
        act = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        act(asked, connection)


def read_request(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        data += piece
        if not piece or data.startswith(b"\x16"):
            return None  # The caller has gone, or begins with TLS where none is spoken.
    line, *headers = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = (each.partition(":") for each in headers)
    return Asked(line=line, headers={key.lower(): value.strip() for key, _, value in pairs})


def tunnel(asked: Asked, connection: socket.socket) -> None:
    """What a proxy does with CONNECT."""
    host, _, port = asked.line.split()[1].rpartition(":")
    with socket.create_connection((host, int(port)), 5) as onward:
        connection.sendall(b"HTTP/1.1 200 Established\r\n\r\n")
        ways = {connection: onward, onward: connection}
        with selectors.DefaultSelector() as selector:
            for one in ways:
                selector.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(5):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    if not data:
                        return
                    ways[source].sendall(data)


def stalling(before: bytes, server: Callable[[], Server]) -> Answer:
    """Say `before`, then nothing more until the test is over."""

    def act(_asked: Asked, connection: socket.socket) -> None:
        connection.sendall(before)
        server().has_answered.set()
        server().stopping.wait(30)

    return act


def dripping(before: bytes, drop: bytes, server: Callable[[], Server]) -> Answer:
    """Say `before`, then a drop every few milliseconds, without an end."""

    def act(_asked: Asked, connection: socket.socket) -> None:
        connection.sendall(before)
        while not server().stopping.wait(0.005):
            connection.sendall(drop)

    return act


@contextmanager
def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    with Server(list(answers), tls) as server:
        yield server
