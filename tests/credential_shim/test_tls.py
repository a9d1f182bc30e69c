"""The way to an authority: names, proxies, certificates, one time for all of it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from credential_shim.clock import SystemClock
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    UnreachableError,
    UsageError,
)
from credential_shim.exchange import Answer
from credential_shim.resolver import resolve
from credential_shim.tls import TlsTransport, trust
from tests.credential_shim.entra_server import HOST, TENANT, EntraServer
from tests.credential_shim.slot_root import HUNG_SECONDS

PATH = f"/{TENANT}/oauth2/v2.0/token"


class Proxy:
    """An HTTP proxy on loopback that leads every CONNECT to one server, or answers as told."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"):
        self.heads: list[str] = []
        self._port = port
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.heads.append(head.decode())
            client.sendall(self._answer)
            if b" 200 " in self._answer:
                with socket.create_connection(("127.0.0.1", self._port)) as server:
                    back = threading.Thread(target=_pump, args=(server, client))
                    back.start()
                    _pump(client, server)
                    back.join()

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def post(entra: EntraServer, origin: str, **environ: str) -> Answer:
    transport = TlsTransport(SystemClock(), environ, str(entra.authority))
    return transport.post(origin, PATH, b"a=b", HUNG_SECONDS)


def refusal(entra: EntraServer, origin: str, **environ: str) -> ShimError:
    with pytest.raises(ShimError) as caught:
        post(entra, origin, **environ)
    return caught.value


def test_an_answer_comes_back_over_tls(entra: EntraServer) -> None:
    assert post(entra, entra.url).status == 400
    assert entra.seen[0].form == "a=b"


def test_a_proxy_connects_and_sees_neither_path_nor_form(entra: EntraServer) -> None:
    with Proxy(entra.port) as proxy:
        url = f"http://user:pass@{proxy.url}"
        assert post(entra, f"https://{HOST}", HTTPS_PROXY=url).status == 400
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT {HOST}:443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpwYXNz" in head
    assert "oauth2" not in head
    assert entra.seen[0].headers["host"] == HOST
    assert "proxy-authorization" not in entra.seen[0].headers


@pytest.mark.parametrize(
    ("answer", "kind", "cause"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", DeniedError, "wants credentials"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", UnreachableError, "answered 502"),
        (b"SSH-2.0-x\r\n\r\n", UnreachableError, "not HTTP"),
        (b"HTTP/1.1 403 No\r\n" + b"X: y\r\n" * 4200, MalformedError, "exceeds"),
    ],
)
def test_a_proxy_that_refuses_is_named_without_its_password(
    entra: EntraServer, answer: bytes, kind: type[ShimError], cause: str
) -> None:
    with Proxy(entra.port, answer) as proxy:
        error = refusal(entra, f"https://{HOST}", HTTPS_PROXY=f"http://user:canary@{proxy.url}")
    assert type(error) is kind
    assert cause in error.message
    assert "canary" not in error.message


def test_a_certificate_for_another_name_is_refused(entra: EntraServer) -> None:
    error = refusal(entra, f"https://127.0.0.1:{entra.port}")
    assert isinstance(error, UnreachableError)
    assert "not trusted" in error.message
    assert error.tries == 1
    assert entra.seen == ()


def test_ssl_cert_file_is_trusted_and_an_explicit_file_wins(
    entra: EntraServer, tmp_path: Path
) -> None:
    environ = {"SSL_CERT_FILE": str(entra.authority)}
    assert (
        TlsTransport(SystemClock(), environ, None).post(entra.url, PATH, b"", HUNG_SECONDS).status
        == 400
    )
    assert post(entra, entra.url, SSL_CERT_FILE="/nonexistent").status == 400
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(UsageError, match="SSL_CERT_FILE"):
        trust(None, {"SSL_CERT_FILE": str(empty)})
    with pytest.raises(UsageError, match="ca-file"):
        trust("/nonexistent", environ)


def test_plain_http_behind_https_is_said(entra: EntraServer) -> None:
    with plain_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = refusal(entra, f"https://localhost:{port}")
    assert isinstance(error, UnreachableError)
    assert "unreachable" in error.message


@contextmanager
def plain_server(data: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join()


@pytest.mark.slow
def test_a_server_that_shakes_no_hand_times_out(entra: EntraServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        transport = TlsTransport(SystemClock(), {}, str(entra.authority))
        with pytest.raises(UnreachableError, match="timed out"):
            transport.post(f"https://localhost:{deaf.getsockname()[1]}", PATH, b"", 0.3)


def test_a_closed_port_and_an_unknown_name_are_told_apart(entra: EntraServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "Connection refused" in refusal(entra, f"https://localhost:{port}").message
    unresolved = refusal(entra, "https://no-such-name.invalid")
    assert "resolved" in unresolved.message


def test_a_name_server_that_never_answers_costs_its_time_only() -> None:
    """Not resolving in no time at all stands for it: the thread is left behind."""
    with pytest.raises(UnreachableError, match="name servers"):
        resolve("localhost", 443, 0.0)
    assert resolve("localhost", 443, 2.0)


def test_the_systems_directory_is_preferred_to_parsing_a_bundle() -> None:
    if not any(name.endswith(".0") for name in os.listdir("/usr/lib/ssl/certs")):
        pytest.skip("this system has no directory of certificates")
    assert trust(None, {}).cert_store_stats()["x509_ca"] == 0
