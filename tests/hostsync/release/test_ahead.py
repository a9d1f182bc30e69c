"""Reading ahead changes nothing but when it happens."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from hostsync.errors import Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind, tree_digest
from hostsync.release import open_candidate, scan
from hostsync.release.ahead import read_ahead
from tests.hostsync.release.tarball import AGENT, Raw, bundle, file

DATA = os.urandom(3 << 20)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.parametrize("items", [0, 1, 7, 8, 9, 1000])
def test_the_same_items_come_in_the_same_order(items: int) -> None:
    made = [bytes([number % 256]) for number in range(items)]
    assert list(read_ahead(iter(made))) == made


def test_an_exception_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    reader = read_ahead(failing())
    assert next(reader) == b"one"
    with pytest.raises(ZeroDivisionError):
        next(reader)


def test_a_reader_that_leaves_early_ends_the_thread_and_little_more_is_made() -> None:
    made: list[int] = []

    def endless() -> Iterator[bytes]:
        for number in count():
            made.append(number)
            yield b"x"

    reader = read_ahead(endless(), depth=4)
    assert [next(reader) for _ in range(10)] == [b"x"] * 10
    reader.close()
    assert len(made) <= 10 + 2 * 4 + 1


def test_a_long_archive_is_unpacked_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(bundle(file("lib/a", DATA), file("lib/b", DATA[:100])))
    with open_candidate(path, agent=AGENT, kind=SlotKind.BUNDLE) as candidate:
        inspected = candidate.stage(tmp_path / "slot", Disk())
    assert (tmp_path / "slot/lib/a").read_bytes() == DATA
    assert tree_digest(scan(tmp_path / "slot")) == inspected.content_digest


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (bundle(file("lib/a", DATA), Raw(name=b"x", type=b"2", link=b"/")), "a symbolic link"),
        (bundle(file("lib/a", DATA), file("lib/b", DATA), file("lib/a")), "one name, twice"),
        (bundle(file("lib/a", DATA))[:-9], "cut short"),
        (bundle(file("lib/a", DATA)) + b"tail", "bytes follow"),
        (gzip.compress(DATA, compresslevel=1), "no archive in ustar format"),
    ],
)
def test_a_long_archive_with_a_flaw_is_refused_and_leaves_nothing(
    tmp_path: Path, spoilt: bytes, says: str
) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(spoilt)
    with (
        pytest.raises(Refused, match=says),
        open_candidate(path, agent=AGENT, kind=SlotKind.BUNDLE) as candidate,
    ):
        candidate.unpack(tmp_path / "slot", Disk())
    assert os.listdir(tmp_path) == ["a.tar.gz"]
