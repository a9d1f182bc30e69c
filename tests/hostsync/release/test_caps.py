from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostsync.errors import Reason, Refused
from hostsync.model import SlotKind
from hostsync.release import open_candidate
from hostsync.release.flaw import Flaw
from hostsync.release.gzip_stream import COMPRESSED_LIMIT, GzipStream
from hostsync.release.member import EXPANDED_LIMIT, MEMBER_LIMIT, MIB, Roll
from tests.hostsync.release.conftest import Refusal
from tests.hostsync.release.tarball import (
    AGENT,
    SCRIPT,
    Raw,
    bundle,
    directory,
    file,
    packed,
    program,
)


def drain(stream: GzipStream) -> int:
    total = 0
    while piece := stream.take(MIB):
        total += len(piece)
    return total


def repeated(piece: bytes, times: int) -> Iterator[bytes]:
    """A gzip stream of `piece` many times, compressed once: a fully flushed block stands alone."""
    packer = zlib.compressobj(1, wbits=31)
    yield packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    yield from [block] * times


@pytest.mark.slow
def test_a_bomb_is_refused_once_the_free_part_has_come_out(refusal: Refusal) -> None:
    assert "more than 200:1" in refusal(bundle(file("zeros", bytes(20 * MIB)))).brief


@pytest.mark.slow
def test_a_small_release_may_compress_as_well_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(bundle(file("zeros", bytes(15 * MIB))))
    with open_candidate(path, agent=AGENT, kind=SlotKind.BUNDLE) as candidate:
        assert candidate.inspect().size == 15 * MIB + len(SCRIPT)


def test_a_bomb_is_stopped_by_the_bytes_it_used_not_by_those_that_follow_it() -> None:
    bomb = gzip.compress(bytes(32 * MIB), compresslevel=1)
    with pytest.raises(Flaw, match="more than 200:1"):
        drain(GzipStream([bomb + bytes(MIB)]))


def test_an_archive_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.tar.gz"
    with path.open("wb") as large:
        large.write(b"\x1f\x8b")
        large.truncate(COMPRESSED_LIMIT + 1)
    with (
        pytest.raises(Refused, match="exceeds 256 MiB compressed"),
        open_candidate(path, agent=AGENT, kind=SlotKind.BUNDLE),
    ):
        pass


@pytest.mark.slow
def test_a_gzip_header_that_never_ends_meets_the_compressed_cap() -> None:
    with_name = b"\x1f\x8b\x08\x08" + bytes(6)
    endless = (piece for piece in [with_name] + [b"n" * MIB] * 300)
    with pytest.raises(Flaw, match="exceeds 256 MiB compressed"):
        drain(GzipStream(endless))
    assert next(endless) == b"n" * MIB


@pytest.mark.slow
def test_a_patient_bomb_below_the_ratio_meets_the_expanded_cap() -> None:
    piece = os.urandom(MIB // 100) + bytes(MIB - MIB // 100)
    patient = repeated(piece, EXPANDED_LIMIT // MIB + 1)
    with pytest.raises(Flaw, match="exceeds 512 MiB expanded"):
        drain(GzipStream(patient))


def test_a_member_that_claims_more_than_the_cap_is_refused_at_its_header(refusal: Refusal) -> None:
    huge = Raw(name=file("huge").name, size=b"%011o" % (EXPANDED_LIMIT + 1))
    assert "huge' exceeds 512 MiB" in refusal(bundle(huge)).brief


def test_the_cap_on_bytes_is_over_all_members_together() -> None:
    roll = Roll()
    roll.admit("a", is_directory=False, size=EXPANDED_LIMIT - 1)
    roll.admit("b", is_directory=False, size=1)
    with pytest.raises(Flaw, match="'c' exceeds the 512 MiB of a release"):
        roll.admit("c", is_directory=False, size=1)


def test_implied_directories_count_as_members() -> None:
    roll = Roll()
    for number in range(MEMBER_LIMIT // 2):
        assert roll.admit(f"{number}/x", is_directory=False, size=0) == (f"{number}",)
    with pytest.raises(Flaw, match="'y' exceeds the 20000 members"):
        roll.admit("y", is_directory=False, size=0)


@pytest.mark.slow
def test_an_archive_with_too_many_members_is_refused(refusal: Refusal) -> None:
    many = [file(f"m{number}", b"") for number in range(MEMBER_LIMIT)]
    error = refusal(packed(directory(""), program(), *many))
    assert "exceeds the 20000 members" in error.brief
    assert error.reason is Reason.BAD_CANDIDATE


def test_a_plain_file_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    with path.open("wb") as large:
        large.write(SCRIPT)
        large.truncate(EXPANDED_LIMIT + 1)
    with (
        pytest.raises(Refused, match="exceeds the 512 MiB"),
        open_candidate(path, agent=AGENT, kind=SlotKind.FILE),
    ):
        pass
