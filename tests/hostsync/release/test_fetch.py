"""Downloads from real servers that misbehave on request: what arrives, or how it fails."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import httpx  # noqa: F401 - imported here, so that no single test pays for it
import pytest
from msgspec.structs import replace

from hostsync.errors import DiskError, FetchCause, Reason, Refused
from hostsync.release.fetch import Means, fetch_bytes
from hostsync.release.url import DownloadUrl
from tests.hostsync.release.downloads import BODY, DIGEST, LOCAL, failing, got
from tests.hostsync.release.web_server import (
    answer,
    dripping,
    head,
    raw,
    serving,
    stalling,
    whole,
)
from tests.hostsync.world import Time

# What arrives


def test_what_arrives_is_what_was_ordered_in_a_file_without_a_name(
    tmp_path: Path, means: Means
) -> None:
    seen: list[tuple[int, int | None]] = []
    means = replace(means, on_fetched=lambda done, total: seen.append((done, total)))
    with serving(answer(body=BODY)) as server:
        assert got(server.url("/a?sig=x"), tmp_path, means) == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    (asked,) = server.asked
    assert asked.line == "GET /a?sig=x HTTP/1.1"
    assert asked.headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(asked.headers)


def test_an_answer_without_a_length_is_taken_whole(tmp_path: Path, means: Means) -> None:
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:]))
    data = head(200, {"transfer-encoding": "chunked"}) + chunked + b"0\r\n\r\n"
    with serving(raw(data)) as server:
        assert got(server.url(), tmp_path, means) == BODY


def test_a_certificate_of_the_authority_in_ssl_cert_file_is_trusted(
    tmp_path: Path, means: Means, tls: ssl.SSLContext
) -> None:
    with serving(answer(body=BODY), tls=tls) as server:
        assert got(server.url(host="localhost"), tmp_path, means) == BODY


def test_a_filesystem_that_knows_no_unnamed_files_is_left_as_clean(
    tmp_path: Path, means: Means, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its own bit, O_TMPFILE asks to write a directory, as on filesystems without it.
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)
    with serving(answer(body=BODY)) as server:
        assert got(server.url(), tmp_path, means) == BODY


def test_other_bytes_than_those_ordered_are_refused_and_not_fetched_again(
    tmp_path: Path, means: Means
) -> None:
    with serving(answer(body=BODY[:-1] + b"?")) as server, pytest.raises(Refused) as caught:
        got(server.url("/a?sig=CANARY"), tmp_path, means)
    assert caught.value.reason is Reason.BAD_CANDIDATE
    assert f"ordered was {DIGEST}" in caught.value.brief
    assert "CANARY" not in str(caught.value)
    assert len(server.asked) == 1
    assert os.listdir(tmp_path) == []


# What goes wrong in between


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_failure_of_the_server_is_waited_out(
    tmp_path: Path, means: Means, status: int
) -> None:
    time_ = Time()
    with serving(answer(status, retry_after="7"), answer(body=BODY)) as server:
        assert got(server.url(), tmp_path, replace(means, clock=time_)) == BODY
    assert time_.now == 1007


@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 410, 501])
def test_any_other_status_ends_the_download_at_once(
    tmp_path: Path, means: Means, status: int
) -> None:
    with serving(raw(head(status, {}))) as server:
        with failing(tmp_path, FetchCause.STATUS) as error:
            got(server.url("/x?sig=CANARY"), tmp_path, means)
        assert f"status {status}" in error().brief
        assert "CANARY" not in str(error())
        assert len(server.asked) == 1


def test_a_server_that_stays_down_is_asked_five_times(tmp_path: Path, means: Means) -> None:
    with serving(answer(503)) as server:
        with failing(tmp_path, FetchCause.STATUS):
            got(server.url(), tmp_path, means)
        assert len(server.asked) == 5


def test_a_body_that_breaks_off_is_resumed_where_it_broke(tmp_path: Path, means: Means) -> None:
    first, second = whole(BODY, cut=100_000), whole(BODY, cut=200_000)
    with serving(first, second, whole(BODY)) as server:
        assert got(server.url(), tmp_path, means) == BODY
        starts = [asked.start for asked in server.asked]
    assert starts[0] == 0
    assert 0 < starts[1] <= 100_000
    assert starts[1] < starts[2] <= 200_000
    assert server.asked[2].headers["if-range"] == '"one"'


def test_an_object_that_changed_meanwhile_is_fetched_from_its_start(
    tmp_path: Path, means: Means
) -> None:
    old = whole(BODY[::-1], tag='"old"', cut=100_000)
    with serving(old, whole(BODY, tag='"new"')) as server:
        assert got(server.url(), tmp_path, means) == BODY
        assert server.asked[1].headers["if-range"] == '"old"'


@pytest.mark.parametrize("tag", ['W/"one"', "one", ""])
def test_without_a_strong_validator_nothing_is_resumed(
    tmp_path: Path, means: Means, tag: str
) -> None:
    with serving(whole(BODY, tag=tag, cut=100_000), whole(BODY, tag=tag)) as server:
        assert got(server.url(), tmp_path, means) == BODY
        assert [asked.headers.get("range") for asked in server.asked] == [None, None]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-range": f"bytes 0-{len(BODY) - 1}/{len(BODY)}"},
        {"content-range": f"bytes 1000-{len(BODY)}/{len(BODY) + 1}"},
        {"content-range": f"bytes 1000-1999/{len(BODY)}"},
        {"content-range": "bytes 1000-*/*"},
        {"content-range": f"bytes 1000-{len(BODY) - 1}/{len(BODY)}", "etag": '"two"'},
    ],
)
def test_a_part_that_is_not_the_rest_is_thrown_away(
    tmp_path: Path, means: Means, headers: dict[str, str]
) -> None:
    odd = raw(head(206, {**headers, "content-length": "9"}) + b"x" * 9)
    with serving(whole(BODY, cut=1000), odd, whole(BODY)) as server:
        assert got(server.url(), tmp_path, means) == BODY
        assert "range" not in server.asked[2].headers


def test_a_patchwork_with_another_digest_is_fetched_once_more_and_whole(
    tmp_path: Path, means: Means
) -> None:
    lie = whole(BODY[::-1], cut=1000)
    with serving(lie, whole(BODY), whole(BODY)) as server:
        assert got(server.url(), tmp_path, means) == BODY
        assert [("range" in asked.headers) for asked in server.asked] == [False, True, False]


def test_a_server_that_falls_silent_is_given_up(tmp_path: Path, means: Means) -> None:
    terms = replace(LOCAL, stall_seconds=0.05, attempts=2)
    silent = stalling(head(200, {"content-length": "9"}) + b"x", lambda: server)
    with serving(silent) as server, failing(tmp_path, FetchCause.STALLED) as error:
        got(server.url(), tmp_path, replace(means, terms=terms))
    assert "sent nothing for 0.05 s" in error().brief


@pytest.mark.parametrize(
    "before", [b"HTTP/1.1 200 OK\r\nx: ", head(200, {"content-length": "999999"})]
)
def test_a_server_that_drips_is_cut_off_at_the_end_of_all_time(
    tmp_path: Path, means: Means, before: bytes
) -> None:
    terms = replace(LOCAL, total_seconds=0.1)
    with (
        serving(dripping(before, b"x", lambda: server)) as server,
        failing(tmp_path, FetchCause.TOO_SLOW),
    ):
        got(server.url(), tmp_path, replace(means, terms=terms))


def test_no_attempt_is_made_that_could_not_end_in_time(tmp_path: Path, means: Means) -> None:
    time_ = Time()
    terms = replace(LOCAL, total_seconds=20)
    with serving(answer(503, retry_after="30")) as server:
        with failing(tmp_path, FetchCause.STATUS):
            got(server.url(), tmp_path, replace(means, terms=terms, clock=time_))
        assert len(server.asked) == 1
    assert time_.now == 1000


@pytest.mark.parametrize("length", [str(len(BODY)), None])
def test_more_than_there_is_room_for_is_refused_told_or_untold(
    tmp_path: Path, means: Means, length: str | None
) -> None:
    headers = {"content-length": length} if length else {}
    with serving(raw(head(200, headers) + BODY)) as server:
        with failing(tmp_path, FetchCause.TOO_LARGE):
            got(server.url(), tmp_path, replace(means, room=100_000))
        assert len(server.asked) == 1


def test_an_encoding_that_was_not_asked_for_is_refused(tmp_path: Path, means: Means) -> None:
    with (
        serving(answer(body=BODY, content_encoding="gzip")) as server,
        failing(tmp_path, FetchCause.PROTOCOL),
    ):
        got(server.url(), tmp_path, means)


@pytest.mark.parametrize(
    "data", [b"", b"SSH-2.0-CANARY\r\n", b"HTTP/1.1 200\r\n\x00CANARY\r\n\r\n"]
)
def test_a_server_that_speaks_no_http_is_told(tmp_path: Path, means: Means, data: bytes) -> None:
    with serving(raw(data)) as server, failing(tmp_path, FetchCause.CUT_SHORT) as error:
        got(server.url(), tmp_path, means)
    assert "CANARY" not in str(error())


def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path: Path, means: Means) -> None:
    def interrupt(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with serving(answer(body=BODY)) as server, pytest.raises(KeyboardInterrupt):
        got(server.url(), tmp_path, replace(means, on_fetched=interrupt))
    assert os.listdir(tmp_path) == []


def test_a_place_that_takes_no_file_is_told(tmp_path: Path, means: Means) -> None:
    with serving(answer(body=BODY)) as server, pytest.raises(DiskError, match="temporary file"):
        got(server.url(), tmp_path / "missing", means)
    assert server.asked == []


def test_a_small_text_is_taken_into_memory_up_to_its_limit(tmp_path: Path, means: Means) -> None:
    with serving(answer(body=b"text")) as server:
        assert fetch_bytes(DownloadUrl.parse(server.url()), 4, means) == b"text"
        with failing(tmp_path, FetchCause.TOO_LARGE):
            fetch_bytes(DownloadUrl.parse(server.url()), 3, means)
