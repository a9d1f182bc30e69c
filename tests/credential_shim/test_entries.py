"""Cached entries: names, keys, trust in files, and who was served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from credential_shim import entries
from credential_shim.entries import Entry, key_of, name_of
from credential_shim.identity import SELECTORS, Endpoint, Identity

NOW = 1_700_000_000.0

plain = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
identities = st.builds(
    Identity,
    login=plain,
    server_id=plain,
    selector=st.one_of(st.none(), st.tuples(st.sampled_from(SELECTORS), plain)),
    endpoint=st.builds(
        Endpoint, st.sampled_from(["127.0.0.1", "::1", "169.254.169.254"]), st.integers(1, 65535)
    ),
)


def facts(identity: Identity) -> tuple[object, ...]:
    endpoint = identity.endpoint
    who = (identity.login, identity.selector, identity.server_id)
    return (*who, endpoint.host, endpoint.port)


@settings(max_examples=50)
@given(
    identities, identities, st.sampled_from(["v1", "v1beta1"]), st.sampled_from(["v1", "v1beta1"])
)
def test_keys_are_equal_exactly_when_everything_they_cover_is(
    one: Identity, other: Identity, version: str, other_version: str
) -> None:
    same = facts(one) == facts(other) and version == other_version
    assert (key_of(one, version) == key_of(other, other_version)) is same


@settings(max_examples=50)
@given(plain, plain, plain, plain)
def test_a_value_cannot_be_crafted_to_look_like_two(a: str, b: str, c: str, d: str) -> None:
    assume((a, b) != (c, d))
    one = Identity(login=a, server_id="s", selector=("client_id", b))
    other = Identity(login=c, server_id="s", selector=("client_id", d))
    assert key_of(one, "v1") != key_of(other, "v1")


@settings(max_examples=50)
@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=1024))
def test_names_are_short_and_safe_whatever_the_values(value: str) -> None:
    key = key_of(Identity(login="msi", server_id="s" + value), "v1")
    name = name_of(key)
    assert len(name) <= entries.LONGEST_NAME
    assert "/" not in name
    assert not name.startswith(".")


def test_long_keys_with_one_beginning_get_different_names() -> None:
    names = {name_of("x" * 300 + str(number)) for number in range(1000)}
    assert len(names) == 1000


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "cache").mkdir(mode=0o700)
    descriptor = entries.open_directory(str(tmp_path / "cache"))
    assert descriptor is not None
    yield descriptor
    os.close(descriptor)


def entry(*, forced: bool = False, fetched: float = NOW) -> Entry:
    times = (fetched + 75, fetched, fetched + 90, fetched + 100)
    return Entry(b'{"kind":"ExecCredential"}', times=times, forced=forced)


def store(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def test_an_entry_survives_the_disk_byte_for_byte(tmp_path: Path, directory: int) -> None:
    store(tmp_path / "cache" / "key", entries.serialize(entry(forced=True), "key"))
    read = entries.load(directory, "key")
    assert read is not None
    assert read.body == entry().body
    assert (read.refresh, read.fetched, read.emitted, read.expires) == (
        NOW + 75,
        NOW,
        NOW + 90,
        NOW + 100,
    )
    assert read.forced


def test_the_first_line_begins_with_the_refresh_time() -> None:
    assert float(entries.serialize(entry(), "key").split()[0]) == NOW + 75


def test_an_entry_of_another_key_is_never_served(tmp_path: Path, directory: int) -> None:
    one, other = "x" * 300 + "a", "x" * 300 + "b"
    store(tmp_path / "cache" / name_of(other), entries.serialize(entry(), one))
    assert entries.load(directory, other) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"1 2 3\nkey\nbody",
        b"a b c d e\nkey\nbody",
        b"nan nan nan nan 0\nkey\nbody",
        b"5 1 4 9 0\nkey\nbody",
        b"2 1 3 4 0\nkey\n",
        b"2 1 3 4 0\nkey",
        b"2 1 3 4 0\nkez\nbody",
        b"2 1 3 4 0\nkey\n" + b"x" * entries.ENTRY_LIMIT,
    ],
)
def test_a_torn_or_foreign_file_is_no_entry(tmp_path: Path, directory: int, content: bytes) -> None:
    store(tmp_path / "cache" / "key", content)
    assert entries.load(directory, "key") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_others_can_touch_is_not_read(tmp_path: Path, directory: int, mode: int) -> None:
    store(tmp_path / "cache" / "key", entries.serialize(entry(), "key"), mode)
    assert entries.load(directory, "key") is None


def test_a_link_or_fifo_is_not_read(tmp_path: Path, directory: int) -> None:
    store(tmp_path / "cache" / "real", entries.serialize(entry(), "key"))
    (tmp_path / "cache" / "key").symlink_to("real")
    os.mkfifo(tmp_path / "cache" / "pipe", 0o600)
    assert entries.load(directory, "key") is None
    assert entries.load(directory, "pipe") is None


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_directory_others_can_enter_is_not_used(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(mode)
    assert entries.open_directory(str(path)) is None


def test_a_linked_or_absent_directory_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert entries.open_directory(str(tmp_path / "link")) is None
    assert entries.open_directory(str(tmp_path / "absent")) is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)
    assert entries.open_directory(str(path)) is None


@pytest.mark.parametrize(
    ("now", "fresh", "usable"),
    [
        (NOW, True, True),
        (NOW + 74.9, True, True),
        (NOW + 75, False, True),
        (NOW + 99.9, False, True),
        (NOW + 100, False, False),
        (NOW - 59, True, True),
        (NOW - 61, False, False),
    ],
)
def test_freshness_ends_before_validity_and_a_clock_set_back_ends_both(
    now: float, fresh: bool, usable: bool
) -> None:
    assert entry().is_fresh(now) is fresh
    assert entry().is_usable(now) is usable


def test_the_same_asker_coming_back_rejects_the_entry(directory: int) -> None:
    assert not entries.is_rejected(directory, "key", entry(), NOW)
    assert entries.is_rejected(directory, "key", entry(), NOW)
    assert not entries.is_rejected(directory, "key", entry(fetched=NOW + 1), NOW)


def test_an_entry_fetched_for_a_rejection_is_not_rejected_again_at_once(directory: int) -> None:
    forced = entry(forced=True)
    assert not entries.is_rejected(directory, "key", forced, NOW)
    assert not entries.is_rejected(directory, "key", forced, NOW + entries.FORCED_PAUSE - 1)
    assert entries.is_rejected(directory, "key", forced, NOW + entries.FORCED_PAUSE)


def test_another_asker_rejects_nothing(tmp_path: Path, directory: int) -> None:
    seen = tmp_path / "cache" / "key.seen"
    store(seen, f"1:999999 {entry().generation}\n".encode())
    assert not entries.is_rejected(directory, "key", entry(), NOW)
    assert len(seen.read_bytes().splitlines()) == 2


def test_the_list_of_askers_stays_bounded(tmp_path: Path, directory: int) -> None:
    seen = tmp_path / "cache" / "key.seen"
    store(seen, b"9:9 1.000000\n" * 1300)
    assert not entries.is_rejected(directory, "key", entry(), NOW)
    assert len(seen.read_bytes().splitlines()) == 1
    assert entries.is_rejected(directory, "key", entry(), NOW)


def test_an_asker_is_a_process_by_id_and_start_time() -> None:
    identifier, _, start = entries.asker().partition(":")
    assert int(identifier) == os.getppid()
    assert int(start) > 0
