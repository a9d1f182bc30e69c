from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from tests.hostsync.release.conftest import Refusal
from tests.hostsync.release.tarball import (
    TOP,
    bundle,
    checksummed,
    file,
    packed,
    program,
    tar,
)

# Framing of the tar stream


def test_a_wrong_checksum_is_refused(refusal: Refusal) -> None:
    bad = replace(file("x"), checksum=b"000001\0 ")
    assert "checksum is wrong" in refusal(bundle(bad)).brief


@pytest.mark.parametrize("size", [b"\x80" + bytes(10) + b"\x01", b"-1", b"", b"1 2", b"0x10", b"8"])
def test_a_size_that_is_not_plain_octal_is_refused(refusal: Refusal, size: bytes) -> None:
    assert "size is not an octal" in refusal(bundle(replace(file("x"), size=size))).brief


@pytest.mark.parametrize("at", [108, 116, 136, 329, 337])
def test_a_field_of_no_use_that_stops_other_readers_is_refused(refusal: Refusal, at: int) -> None:
    block = bytearray(program().to_bytes())
    block[at : at + 2] = b"9x"
    archive = checksummed(bytes(block[:512])) + bytes(block[512:]) + bytes(1024)
    assert "owner, time or device" in refusal(gzip.compress(archive)).brief


def test_a_header_without_the_ustar_magic_is_refused(refusal: Refusal) -> None:
    assert "ustar format" in refusal(bundle(replace(file("x"), magic=b""))).brief


def test_bytes_hidden_in_the_padding_of_a_file_are_refused(refusal: Refusal) -> None:
    assert "hidden in its padding" in refusal(bundle(replace(file("x"), padding=b"!"))).brief


@pytest.mark.parametrize("end", [b"", bytes(512), bytes(1023)])
def test_an_archive_without_its_two_end_blocks_is_refused(refusal: Refusal, end: bytes) -> None:
    assert "ends too early" in refusal(bundle(end=end)).brief


def test_a_member_after_one_zero_block_is_refused(refusal: Refusal) -> None:
    assert "block follows the end" in refusal(bundle(end=bytes(512) + tar(file("x")))).brief


def test_a_second_tar_archive_after_the_first_is_refused(refusal: Refusal) -> None:
    assert "bytes follow the end" in refusal(bundle(end=bytes(1024) + tar(file("x")))).brief


def test_a_member_that_claims_more_than_there_is_is_refused(refusal: Refusal) -> None:
    long = replace(file("x"), size=b"00000100000")
    assert "is cut short" in refusal(bundle(long)).brief


def test_a_compressed_stream_that_is_no_archive_is_refused(refusal: Refusal) -> None:
    assert "ustar format" in refusal(gzip.compress(b"x" * 2048)).brief
    assert "ends too early" in refusal(gzip.compress(b"")).brief


def test_an_archive_without_members_is_refused(refusal: Refusal) -> None:
    assert f"must hold '{TOP}'" in refusal(packed()).brief


# Framing of the gzip stream


def test_every_truncation_is_refused(refusal: Refusal) -> None:
    whole = bundle()
    for length in range(2, len(whole)):
        assert "compressed data is cut short" in refusal(whole[:length]).brief


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 512, b"x", b"\n"])
def test_trailing_bytes_are_refused_zeros_too(refusal: Refusal, tail: bytes) -> None:
    assert "bytes follow the end of its compressed data" in refusal(bundle() + tail).brief


@pytest.mark.parametrize("second", [b"", b"x", tar(file("x"))])
def test_a_second_gzip_member_is_refused(refusal: Refusal, second: bytes) -> None:
    assert "second gzip member" in refusal(bundle() + gzip.compress(second)).brief


def test_a_gzip_member_cut_into_two_is_refused(refusal: Refusal) -> None:
    plain = gzip.decompress(bundle())
    halves = gzip.compress(plain[:700]) + gzip.compress(plain[700:])
    assert "second gzip member" in refusal(halves).brief


@pytest.mark.parametrize("at", [-1, -5])
def test_a_wrong_length_or_checksum_of_the_gzip_member_is_refused(
    refusal: Refusal, at: int
) -> None:
    damaged = bytearray(bundle())
    damaged[at] ^= 1
    assert "compressed data is damaged" in refusal(bytes(damaged)).brief
