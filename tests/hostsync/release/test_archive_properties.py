"""Archives drawn from primitives, and what the oracle says of them."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from hostsync.release.archive import read_archive
from hostsync.release.flaw import Flaw
from tests.hostsync.release.oracle import WANTED, Drawn, good, read, read_by_tarfile
from tests.hostsync.release.tarball import (
    AGENT,
    GNU,
    POSIX,
    SCRIPT,
    TOP,
    bundle,
    checksummed,
    file,
    pax,
    program,
    tar,
)

components = st.sampled_from(
    ["a", "b", "A", "bin", "lib", AGENT, "x y", "..", ".", "", "é", "a\\b", "RELEASE", "...", "\n"]
)
tops = st.sampled_from([TOP] * 12 + ["other", "", ".", "..", TOP.upper()])
names = st.builds(
    lambda top, below, slash: "/".join([top, *below]) + slash,
    tops,
    st.lists(components, max_size=3),
    st.sampled_from(["", "", "", "/"]),
)
good_names = st.lists(
    st.sampled_from(["a", "b", "c", "A", "bin", "lib"]), min_size=1, max_size=3
).map(lambda below: "/".join([TOP, *below]))
members = st.builds(
    Drawn,
    name=st.one_of(good_names, names),
    type=st.sampled_from([b"0"] * 6 + [b"5"] * 6 + [b"1", b"2", b"3", b"6", b"7", b"\0", b"g"]),
    mode=st.sampled_from([0o644, 0o755, 0o600, 0o775] * 3 + [0o4755, 0o666, 0o1777]),
    data=st.sampled_from([b""] * 4 + [b"x", SCRIPT, b"y" * 512, b"z" * 1500]),
    link=st.sampled_from([b""] * 9 + [b"/etc"]),
    magic=st.sampled_from([POSIX, GNU]),
    note=st.sampled_from(
        [
            *[None] * 8,
            ("mtime", "1.5"),
            ("uname", "x"),
            ("path", f"{TOP}/a"),
            ("size", "1"),
            ("linkpath", "/etc"),
        ]
    ),
)
entry_point = Drawn(
    name=f"{TOP}/bin/{AGENT}",
    type=b"0",
    mode=0o755,
    data=SCRIPT,
    link=b"",
    magic=POSIX,
    note=None,
)
plain_members = st.builds(
    Drawn,
    name=good_names,
    type=st.sampled_from([b"0", b"5"]),
    mode=st.sampled_from([0o644, 0o755]),
    data=st.just(b""),
    link=st.just(b""),
    magic=st.sampled_from([POSIX, GNU]),
    note=st.none(),
)
archives = st.builds(
    lambda before, after: [*before, entry_point, *after],
    st.lists(plain_members | members, max_size=2),
    st.lists(plain_members, max_size=2),
) | st.lists(members | st.just(entry_point), max_size=3)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(drawn=archives)
def test_an_archive_is_accepted_exactly_when_the_oracle_finds_nothing_wrong(
    drawn: list[Drawn],
) -> None:
    data = gzip.compress(tar(*(raw for m in drawn for raw in m.raw())), compresslevel=1)
    try:
        found = read(data)
    except Flaw:
        event("refused")
        assert not good(drawn)
    else:
        event("accepted")
        assert good(drawn)
        assert found == read_by_tarfile(data)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_a_changed_header_with_a_right_checksum_is_refused_or_read_as_tarfile_reads_it(
    data: st.DataObject,
) -> None:
    plain = bytearray(tar(program(), pax(("mtime", "1")), file("lib/x", b"content")))
    starts = [0, 1024, 2048]
    at = data.draw(st.sampled_from(starts))
    block = bytearray(plain[at : at + 512])
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, 511))] = data.draw(st.integers(0, 255))
    plain[at : at + 512] = checksummed(bytes(block))
    archive = gzip.compress(bytes(plain), compresslevel=1)
    try:
        found = read(archive)
    except Flaw:
        event("refused")
        return
    event("accepted")
    assert found == read_by_tarfile(archive)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(at=st.integers(0, len(bundle()) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_the_compressed_stream_never_changes_what_is_read(
    at: int, bit: int
) -> None:
    whole = bytearray(bundle())
    whole[at] ^= 1 << bit
    try:
        found = read(bytes(whole))
    except Flaw:
        return
    # Some bits say nothing about content: time and system in the header, the last byte's fill.
    assert found == read(bundle())


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 200), min_size=1), junk=st.binary(max_size=40))
def test_how_the_bytes_arrive_in_chunks_makes_no_difference(sizes: list[int], junk: bytes) -> None:
    whole = bundle(file("lib/x", bytes(range(256)) * 700)) + junk

    def chunks() -> list[bytes]:
        cut: list[bytes] = []
        at = 0
        while at < len(whole):
            size = sizes[len(cut) % len(sizes)]
            cut.append(whole[at : at + size])
            at += size
        return cut

    try:
        paths = [member.path for member in read_archive(chunks(), WANTED)]
    except Flaw:
        assert junk
    else:
        assert not junk
        assert paths == ["bin", f"bin/{AGENT}", "lib", "lib/x"]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(plain=st.binary(max_size=3000), is_packed=st.booleans())
def test_arbitrary_bytes_are_refused_and_never_crash_the_reader(
    plain: bytes, is_packed: bool
) -> None:
    with pytest.raises(Flaw):
        read(gzip.compress(plain, compresslevel=1) if is_packed else b"\x1f\x8b" + plain)
