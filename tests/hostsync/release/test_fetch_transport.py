"""Whom a download trusts and by which way it goes: TLS, redirects, proxies, names."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx  # noqa: F401 - imported here, so that no single test pays for it
import pytest
import trustme
from msgspec.structs import replace

from hostsync.errors import FetchCause, Reason, Refused
from hostsync.release.fetch import Means
from tests.hostsync.release.downloads import BODY, certified, failing, got, once
from tests.hostsync.release.web_server import (
    answer,
    redirect,
    serving,
    tunnel,
)
from tests.hostsync.world import Time


@pytest.mark.parametrize("host", ["127.0.0.2", "example.invalid"])
def test_clear_text_is_refused_unless_the_host_is_configured(
    tmp_path: Path, means: Means, host: str
) -> None:
    with pytest.raises(Refused) as caught:
        got(f"http://{host}:1/a?sig=CANARY", tmp_path, means)
    assert caught.value.reason is Reason.UNTRUSTED_SOURCE
    assert "download.insecure_hosts" in caught.value.remedy
    assert "CANARY" not in str(caught.value)


def test_a_redirect_from_https_to_clear_text_is_refused_even_to_a_configured_host(
    tmp_path: Path, means: Means, tls: ssl.SSLContext
) -> None:
    with serving(answer(body=BODY)) as plain, serving(redirect(plain.url()), tls=tls) as server:
        with failing(tmp_path, FetchCause.REDIRECT) as error:
            got(server.url(), tmp_path, means)
        assert "in clear text" in error().brief
    assert plain.asked == []


def test_five_redirects_are_followed_and_a_sixth_is_not(tmp_path: Path, means: Means) -> None:
    hops = [redirect(f"/{number}?sig=x", 302 + number % 2 * 5) for number in range(6)]
    with serving(*hops[:5], answer(body=BODY)) as server:
        assert got(server.url(), tmp_path, means) == BODY
    with serving(*hops) as server:
        with failing(tmp_path, FetchCause.REDIRECT):
            got(server.url(), tmp_path, means)
        assert len(server.asked) == 6


@pytest.mark.parametrize(
    "location",
    ["https://user:CANARY@host/x", "/x#CANARY", "gopher://CANARY", "https://CANARY:0/", ""],
)
def test_a_redirect_to_what_is_no_download_url_is_refused(
    tmp_path: Path, means: Means, location: str
) -> None:
    with serving(redirect(location)) as server:
        with failing(tmp_path, FetchCause.REDIRECT) as error:
            got(server.url(), tmp_path, means)
        assert "CANARY" not in str(error())
        assert len(server.asked) == 1


def test_nothing_that_one_origin_said_is_told_to_another(tmp_path: Path, means: Means) -> None:
    with serving(answer(body=BODY)) as other:
        onward = answer(302, location=other.url(), set_cookie="a=CANARY; Path=/")
        with serving(onward) as server:
            assert got(server.url("/x?sig=CANARY"), tmp_path, means) == BODY
    assert "CANARY" not in str(other.asked)


@pytest.mark.parametrize(
    ("names", "says"),
    [(("other.invalid",), "not trusted"), (("localhost",), "not trusted: IP address mismatch")],
)
def test_a_certificate_for_another_name_is_refused(
    tmp_path: Path, means: Means, authority: trustme.CA, tls: ssl.SSLContext, names: tuple[str],
    says: str,
) -> None:  # fmt: skip
    with serving(answer(body=BODY), tls=certified(authority, *names)) as server:
        with failing(tmp_path, FetchCause.TLS) as error:
            got(server.url("/x?sig=CANARY"), tmp_path, means)
        assert says in error().brief
        assert "127.0.0.1" in error().brief
        assert "SSL_CERT_FILE" in error().remedy


def test_a_certificate_of_an_unknown_authority_is_refused(
    tmp_path: Path, means: Means, tls: ssl.SSLContext
) -> None:
    with (
        serving(answer(body=BODY), tls=certified(trustme.CA(), "127.0.0.1")) as server,
        failing(tmp_path, FetchCause.TLS),
    ):
        got(server.url(), tmp_path, means)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_an_ssl_cert_file_that_cannot_be_used_is_an_error_and_not_ignored(
    tmp_path: Path, means: Means, monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory, content: bytes | None,
) -> None:  # fmt: skip
    bundle = tmp_path_factory.mktemp("authority") / "ca.pem"
    if content is not None:
        bundle.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with failing(tmp_path, FetchCause.TLS) as error:
        got("https://127.0.0.1:1/x", tmp_path, means)
    assert str(bundle) in error().brief


def test_a_server_that_speaks_no_tls_is_told(
    tmp_path: Path, means: Means, tls: ssl.SSLContext
) -> None:
    with serving(answer(body=BODY)) as server, failing(tmp_path, FetchCause.TLS):
        got(server.url().replace("http:", "https:"), tmp_path, once(means))


def test_a_port_that_nobody_listens_on_is_told_after_every_attempt(
    tmp_path: Path, means: Means
) -> None:
    time_ = Time()
    with failing(tmp_path, FetchCause.CONNECT) as error:
        got("http://127.0.0.1:1/x", tmp_path, replace(means, clock=time_))
    assert "127.0.0.1:1 cannot be reached: Connection refused" in error().brief
    # Four pauses of 3/4 of 1, 2, 4 and 8 seconds.
    assert time_.now == 1000 + 0.75 * 15


def test_a_name_without_an_address_is_told(
    tmp_path: Path, means: Means, tls: ssl.SSLContext
) -> None:
    with failing(tmp_path, FetchCause.DNS) as error:
        got("https://nowhere.invalid/x?sig=CANARY", tmp_path, once(means))
    assert "nowhere.invalid" in error().brief


# Proxies


def test_https_goes_through_the_tunnel_of_a_proxy_which_sees_no_path(
    tmp_path: Path, means: Means, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer(body=BODY), tls=tls) as server, serving(tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:CANARY@127.0.0.1:{proxy.port}")
        assert got(server.url("/a?sig=x"), tmp_path, means) == BODY
        assert [asked.line for asked in proxy.asked] == [
            f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
        ]
        assert "proxy-authorization" in proxy.asked[0].headers
    assert "proxy-authorization" not in server.asked[0].headers


@pytest.mark.parametrize("exempt", ["127.0.0.1", "*", "other.invalid,127.0.0.1:{port}"])
def test_a_host_in_no_proxy_is_asked_directly(
    tmp_path: Path, means: Means, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    with serving(answer(body=BODY), tls=tls) as server:
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", exempt.format(port=server.port))
        assert got(server.url(), tmp_path, means) == BODY


@pytest.mark.usefixtures("tls")
@pytest.mark.parametrize(
    ("proxy", "cause", "says"),
    [
        ("http://u:CANARY@127.0.0.1:1", FetchCause.CONNECT, "the proxy 127.0.0.1:1 cannot be reac"),
        ("http://u:CANARY@nowhere.invalid:1", FetchCause.DNS, "the proxy nowhere.invalid:1"),
        ("socks5://u:CANARY@127.0.0.1:1", FetchCause.PROXY, "HTTPS_PROXY"),
        ("http://u:CANARY@h:port:x/y", FetchCause.PROXY, "HTTPS_PROXY"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_credentials(
    tmp_path: Path, means: Means, monkeypatch: pytest.MonkeyPatch, proxy: str,
    cause: FetchCause, says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with failing(tmp_path, cause) as error:
        got("https://127.0.0.1:2/x", tmp_path, once(means))
    assert says in error().brief
    assert "CANARY" not in str(error())


def test_a_proxy_that_wants_credentials_is_told_at_once(
    tmp_path: Path, means: Means, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer(407, b"CANARY")) as proxy:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
        with failing(tmp_path, FetchCause.PROXY) as error:
            got("https://127.0.0.1:2/x", tmp_path, means)
    assert "status 407" in error().brief
    assert len(proxy.asked) == 1
