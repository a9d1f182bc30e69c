"""HTTP as it is on the wire, against a real server that misbehaves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from credential_shim.clock import SystemClock
from credential_shim.errors import MalformedError, ShimError, UnreachableError
from credential_shim.exchange import BODY_LIMIT, HEAD_LIMIT, Answer, DirectTransport
from credential_shim.identity import Endpoint
from tests.credential_shim.imds_server import Handler, ImdsServer, chunked, raw
from tests.credential_shim.slot_root import HUNG_SECONDS


def get(imds: ImdsServer, seconds: float = HUNG_SECONDS) -> Answer:
    return get_from(Endpoint("127.0.0.1", imds.port), seconds)


def get_from(endpoint: Endpoint, seconds: float = HUNG_SECONDS) -> Answer:
    return DirectTransport(SystemClock()).get(endpoint, "/x?y=z", {"Metadata": "true"}, seconds)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A:1\r\n\r\nhelloIGNORED",
        b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nhello",
        b"HTTP/1.1 200\nX-a: 1\n\nhello",
        b"HTTP/1.1 200\nTransfer-Encoding: Chunked\nX-A: 1\n\n2;e=1\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_every_framing_gives_the_same_answer(imds: ImdsServer, data: bytes) -> None:
    imds.then(raw(data))
    answer = get(imds)
    assert (answer.status, answer.body, answer.headers["x-a"]) == (200, b"hello", "1")


def test_the_request_carries_target_and_headers(imds: ImdsServer) -> None:
    imds.then(chunked)
    assert b"access_token" in get(imds).body
    seen = imds.seen[0]
    assert seen.path == "/x"
    assert seen.query == {"y": "z"}
    assert seen.headers["metadata"] == "true"
    assert seen.headers["host"] == f"127.0.0.1:{imds.port}"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabXX\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1),
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_LIMIT + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * HEAD_LIMIT + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: yyyyyyyyyyyyyyyy\r\n" * 1000 + b"\r\n",
        b"x" * (HEAD_LIMIT * 3),
    ],
)
def test_bytes_that_are_not_strict_http_or_too_many_are_malformed(
    imds: ImdsServer, data: bytes
) -> None:
    imds.then(raw(data))
    with pytest.raises(MalformedError):
        get(imds)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_an_answer_cut_short_is_unreachable_and_worth_another_try(
    imds: ImdsServer, data: bytes
) -> None:
    imds.then(raw(data))
    with pytest.raises(UnreachableError) as caught:
        get(imds)
    assert caught.value.tries > 1


def test_a_server_that_never_answers_times_out(imds: ImdsServer) -> None:
    imds.then(imds.hold)
    assert_times_out(lambda: get(imds, 0.15))


@pytest.mark.slow
def test_a_server_that_drips_bytes_times_out_as_a_whole(imds: ImdsServer) -> None:
    def drip(handler: Handler) -> None:
        while not imds.stopped(0.02):
            handler.wfile.write(b"H")

    imds.then(drip)
    assert_times_out(lambda: get(imds, 0.3))


def assert_times_out(act: Callable[[], Answer]) -> None:
    """Without a limit on the whole, neither server ever lets it return."""
    with pytest.raises(UnreachableError, match="timed out"):
        act()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port nobody listens on, kept from others by a bound socket."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_refused_connection_names_the_endpoint(closed_port: int) -> None:
    with pytest.raises(ShimError, match=f"127.0.0.1:{closed_port} is unreachable") as caught:
        get_from(Endpoint("127.0.0.1", closed_port))
    assert caught.value.exit_code == 4


def test_proxy_variables_are_not_looked_at(
    imds: ImdsServer, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    imds.then(chunked)
    assert get(imds).status == 200
