"""The web server around the services: bytes on the wire, the log, and misconduct on request."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.world.conduct import DOWN, Conduct, Instructions, instruct, slow, throttled
from e2e.world.documents import merge
from e2e.world.pki import make_authority
from e2e.world.web import Request, RequestLog, Response, Website, answer


def echo(request: Request) -> Response:
    if request.path == "/stream":
        return Response(stream=(line for line in (b"one\n", b"two\n")))
    return answer(200, {"method": request.method, "body": request.body.decode()}, seen=1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Website]:
    instructions = Instructions(tmp_path / "orders.json")
    yield from served(Website(("127.0.0.1", 0), echo, RequestLog(tmp_path / "log"), instructions))


def served(site: Website) -> Iterator[Website]:
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


@pytest.fixture
def line(site: Website) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", site.server_port, timeout=60)
    yield connection
    connection.close()


def ask(
    line: http.client.HTTPConnection, path: str = "/", body: bytes | Iterator[bytes] | None = None
) -> tuple[int, bytes]:
    line.request("PUT" if body else "GET", path, body, {"User-Agent": "test"})
    response = line.getresponse()
    return response.status, response.read()


def test_one_connection_carries_many_requests_and_bodies_of_either_kind(
    line: http.client.HTTPConnection,
) -> None:
    assert json.loads(ask(line)[1]) == {"method": "GET", "body": ""}
    kept = line.sock
    assert json.loads(ask(line, body=b"whole")[1])["body"] == "whole"
    assert json.loads(ask(line, body=iter([b"in ", b"pieces"]))[1])["body"] == "in pieces"
    assert ask(line, "/stream") == (200, b"one\ntwo\n")
    assert line.sock is kept


def test_the_log_has_a_line_for_each_answer_before_the_answer_arrives(
    line: http.client.HTTPConnection, tmp_path: Path
) -> None:
    ask(line, "/path?a=b")
    entry = json.loads((tmp_path / "log").read_text())
    assert (entry["verb"], entry["path"], entry["query"]) == ("GET", "/path", {"a": "b"})
    assert (entry["status"], entry["agent"], entry["seen"]) == (200, "test", 1)


def test_misconduct_starts_with_the_next_request_and_ends_when_told(
    line: http.client.HTTPConnection, tmp_path: Path
) -> None:
    orders = tmp_path / "orders.json"
    instruct(orders, throttled(3))
    line.request("GET", "/")
    response = line.getresponse()
    response.read()
    assert (response.status, response.headers["Retry-After"]) == (429, "3")
    instruct(orders, Conduct())
    assert ask(line)[0] == 200


def test_misconduct_can_be_for_some_requests_and_some_paths_only(
    line: http.client.HTTPConnection, tmp_path: Path
) -> None:
    instruct(tmp_path / "orders.json", Conduct(status=500, times=2, only="/token"))
    told = [ask(line, path)[0] for path in ("/other", "/token", "/token", "/token")]
    assert told == [200, 500, 500, 200]


def test_a_service_that_is_down_closes_without_a_byte_and_says_so_in_the_log(
    line: http.client.HTTPConnection, tmp_path: Path
) -> None:
    instruct(tmp_path / "orders.json", DOWN)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(line)
    assert json.loads((tmp_path / "log").read_text())["status"] == 0


@pytest.mark.parametrize(
    "cut",
    [
        b"PUT /a HTTP/1.1\r\nHost: lab\r\nContent-Length: 9\r\n\r\n{",
        b"PUT /a HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{",
        b"PUT /a HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
    ids=["body", "chunk", "chunks"],
)
def test_a_request_whose_client_goes_in_the_middle_was_not_made(
    site: Website, line: http.client.HTTPConnection, tmp_path: Path, cut: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", site.server_port), timeout=60) as client:
        client.sendall(cut)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    ask(line, "/after")
    (entry,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(entry)["path"] == "/after"


def test_a_slow_service_answers_well_in_the_end(
    line: http.client.HTTPConnection, tmp_path: Path
) -> None:
    instruct(tmp_path / "orders.json", slow(0.05))
    assert ask(line)[0] == 200
    assert json.loads((tmp_path / "log").read_text())["took"] >= 0.05


def test_tls_is_served_under_every_name_the_authority_vouches_for(tmp_path: Path) -> None:
    authority = make_authority()
    (tmp_path / "server.pem").write_bytes(authority.issue(("localhost",), ("127.0.0.1",)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    site = Website(
        ("127.0.0.1", 0), echo, RequestLog(tmp_path / "log"), Instructions(tmp_path / "o"), context
    )
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    for running in served(site):
        for name in ("localhost", "127.0.0.1"):
            line = http.client.HTTPSConnection(name, running.server_port, timeout=60, context=trust)
            assert ask(line)[0] == 200
            line.close()
        stranger = http.client.HTTPSConnection(
            "127.0.0.1",
            running.server_port,
            timeout=60,
            context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(stranger)
        stranger.close()


def test_a_merge_patch_removes_with_null_and_leaves_the_original_alone() -> None:
    original: dict[str, object] = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]}) == {
        "a": {"c": 2},
        "d": [2],
    }
    assert original == {"a": {"b": 1, "c": 2}, "d": [1]}
