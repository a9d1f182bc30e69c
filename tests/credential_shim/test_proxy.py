"""Proxies by HTTPS_PROXY and NO_PROXY."""

from __future__ import annotations

import pytest

from credential_shim.errors import UsageError
from credential_shim.proxy import Proxy, proxy_for

HOST = "login.microsoftonline.com"


def chosen(no_proxy: str = "", host: str = HOST, port: int = 443) -> Proxy | None:
    return proxy_for(host, port, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy})


@pytest.mark.parametrize(
    "no_proxy", ["", "example.com", "microsoft.com", "notlogin.microsoftonline.com", "10.0.0.0/8",
                 "login.microsoftonline.com:8443", ",", "online.com", "300.1.1.1/8"]
)  # fmt: skip
def test_the_proxy_stands_before_what_no_proxy_does_not_cover(no_proxy: str) -> None:
    assert str(chosen(no_proxy)) == "proxy:3128"


@pytest.mark.parametrize(
    "no_proxy", ["*", HOST, "microsoftonline.com", ".microsoftonline.com", "*.microsoftonline.com",
                 "a, LOGIN.MICROSOFTONLINE.COM ", f"{HOST}:443"]
)  # fmt: skip
def test_what_no_proxy_covers_is_direct(no_proxy: str) -> None:
    assert chosen(no_proxy) is None


def test_networks_and_loopback_are_direct() -> None:
    assert chosen("10.0.0.0/8", host="10.1.2.3") is None
    assert chosen("10.0.0.0/8", host="11.1.2.3") is not None
    for host in ("localhost", "127.0.0.1", "::1"):
        assert chosen(host=host) is None


def test_no_variable_no_proxy_and_others_do_not_count() -> None:
    environ = {"HTTP_PROXY": "http://p", "ALL_PROXY": "http://p", "HTTPS_PROXY": ""}
    assert proxy_for(HOST, 443, environ) is None
    lower = proxy_for(HOST, 443, {"https_proxy": "proxy:1"})
    assert str(lower) == "proxy:1"


def test_credentials_are_decoded_and_stay_out_of_the_name() -> None:
    proxy = proxy_for(HOST, 443, {"HTTPS_PROXY": "http://user:p%40ss@proxy"})
    assert proxy is not None
    assert proxy.authorization == "Basic dXNlcjpwQHNz"
    assert str(proxy) == "proxy:80"


@pytest.mark.parametrize(
    "url", ["https://user:canary@proxy", "socks5://canary", "http://", "http://canary:port"]
)
def test_other_proxies_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        proxy_for(HOST, 443, {"HTTPS_PROXY": url})
    assert "HTTPS_PROXY" in caught.value.message
    assert "canary" not in caught.value.message
