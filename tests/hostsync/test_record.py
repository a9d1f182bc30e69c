"""The record survives what disks do, and is never guessed at."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.errors import Refused
from hostsync.fs import Disk
from hostsync.model import SlotName
from hostsync.record import Phase, Record, RecordFile, ReleaseId, decode, encode

RECORD = Record(
    order="0badcafe",
    agent="hostsync",
    candidate=ReleaseId(version="1.1.0", digest="1" * 64),
    previous=ReleaseId(version="1.0.0", digest="0" * 64),
    previous_slot=SlotName.BLUE,
    target_slot=SlotName.GREEN,
    last_good_slot=None,
    evicts=False,
    phase=Phase.SWITCHED,
    created_at=1.0,
    updated_at=2.0,
)


def test_what_is_stored_is_loaded_and_only_root_may_read_it(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "state", Disk())
    file.store(RECORD)
    assert RecordFile(tmp_path / "state", Disk()).load() == RECORD
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_cleared_record_is_no_record(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "state", Disk())
    file.store(RECORD)
    file.clear()
    file.clear()
    assert file.load() is None


@given(st.integers(0, len(encode(RECORD)) - 1), st.integers(1, 255))
def test_a_record_with_any_byte_altered_is_refused_or_the_same(at: int, flip: int) -> None:
    data = bytearray(encode(RECORD))
    data[at] ^= flip
    with suppress(ValueError):
        assert decode(bytes(data)) == RECORD


@given(st.integers(0, len(encode(RECORD)) - 1))
def test_a_torn_record_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(encode(RECORD)[:length])


def test_a_record_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema is 2"):
        decode(encode(msgspec.structs.replace(RECORD, schema=2)))


def test_an_unreadable_record_stops_every_verb_and_stays_where_it_is(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, Disk())
    file.path.write_bytes(b"{}")
    with pytest.raises(Refused, match="--set-record-aside"):
        file.load()
    assert file.path.read_bytes() == b"{}"
    kept = file.set_aside("1")
    assert kept.read_bytes() == b"{}"
    assert file.load() is None
