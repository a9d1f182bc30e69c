"""What is taken for a URL, and what of it may be seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.release.url import DownloadUrl, parse_place


def test_a_url_is_shown_without_its_query_and_sent_with_it() -> None:
    url = DownloadUrl.parse("HTTPS://Example.COM:443/a/b.tar.gz?sig=CANARY&x=1")
    assert str(url) == "https://example.com/a/b.tar.gz"
    assert repr(url) == "DownloadUrl('https://example.com/a/b.tar.gz')"
    assert url.reveal() == "https://example.com/a/b.tar.gz?sig=CANARY&x=1"


def test_what_lies_beside_a_signed_url_keeps_the_query() -> None:
    url = DownloadUrl.parse("https://h:8443/a.tar.gz?sig=1").beside(".minisig")
    assert url.reveal() == "https://h:8443/a.tar.gz.minisig?sig=1"


@pytest.mark.parametrize(
    "text",
    [
        "https://user:CANARY@host/x",
        "https://CANARY@host/x",
        "https://host/x#CANARY",
        "https://host/CANARY x",
        "https://host\\@CANARY/x",
        "https://host:0/CANARY",
        "https://host:65536/CANARY",
        "https:///CANARY",
        "https://[::CANARY]/x",
        "https://[1::2::3]/CANARY",
        "https://h\u00f6st/CANARY",
        "https://host/\x1b[31mCANARY",
        "https://host/x\nCANARY",
        "https://.host/CANARY",
        "https://a..b/CANARY",
        "https://host/" + "CANARY" * 2000,
        "ftp://host/CANARY",
        "file://elsewhere/CANARY",
        "file:///a%00CANARY",
        "file:///a?CANARY",
        "file://",
    ],
)
def test_what_is_no_download_url_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|candidate") as caught:
        parse_place(text)
    assert "CANARY" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("dist/x.tar.gz", "dist/x.tar.gz"),
        ("https:/odd", "https:/odd"),
    ],
)
def test_a_path_and_a_file_url_are_paths(text: str, path: str) -> None:
    assert parse_place(text) == Path(path)


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/b?sig=2", "https://host/b?sig=2"),
        ("b", "https://host/dir/b"),
        ("//other:8443/b", "https://other:8443/b"),
        ("https://other/b", "https://other/b"),
        ("http://other/b", "http://other/b"),
        ("", "https://host/dir/a?sig=1"),
    ],
)
def test_a_redirect_is_read_relative_to_where_it_comes_from(location: str, leads_to: str) -> None:
    url = DownloadUrl.parse("https://host/dir/a?sig=1")
    assert url.redirected(location).reveal() == leads_to


@given(st.text(max_size=60))
def test_any_text_is_a_url_that_reads_back_as_itself_or_is_refused(text: str) -> None:
    try:
        url = DownloadUrl.parse(f"https://{text}")
    except ValueError:
        return
    assert DownloadUrl.parse(url.reveal()) == url
