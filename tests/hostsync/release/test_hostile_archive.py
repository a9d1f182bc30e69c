from __future__ import annotations

import tarfile
from dataclasses import replace
from io import BytesIO

import pytest

from hostsync.errors import Reason
from tests.hostsync.release.conftest import Refusal
from tests.hostsync.release.tarball import (
    GNU,
    HOST,
    TOP,
    Raw,
    bundle,
    directory,
    file,
    packed,
    pax,
    pax_record,
    program,
    renamed,
)

# Names


@pytest.mark.parametrize(
    "name",
    [
        f"/{TOP}/x",
        "/etc/passwd",
        f"./{TOP}/x",
        f"{TOP}/../x",
        f"{TOP}/lib/../../x",
        f"{TOP}/./x",
        f"{TOP}//x",
        f"{TOP}/x/",
        "..",
        ".",
        "",
    ],
)
def test_a_name_that_is_not_plainly_beneath_the_top_is_refused(refusal: Refusal, name: str) -> None:
    error = refusal(bundle(renamed(file("x"), name)))
    assert error.reason is Reason.BAD_CANDIDATE
    assert "empty, '.' or '..' component" in error.brief


@pytest.mark.parametrize(
    "name", ["x", f"{TOP}x", f"{TOP}-x/y", "hostsync/x", f"other-linux-{HOST}/x"]
)
def test_a_member_beside_the_top_directory_is_refused(refusal: Refusal, name: str) -> None:
    assert f"everything beneath '{TOP}'" in refusal(bundle(renamed(file("x"), name))).brief


@pytest.mark.parametrize("name", ["a\\b", "..\\b", "a\tb", "\x1b[2J", "é", "\u202etxt.exe"])
def test_a_name_beyond_printable_ascii_or_with_a_backslash_is_refused(
    refusal: Refusal, name: str
) -> None:
    brief = refusal(bundle(file(name))).brief
    assert "beyond printable ASCII" in brief
    assert brief.isprintable()


def test_bytes_after_the_nul_in_a_name_are_refused(refusal: Refusal) -> None:
    hidden = replace(file("x"), name=f"{TOP}/x".encode() + b"\0/../../etc/passwd")
    assert "hidden after a NUL" in refusal(bundle(hidden)).brief


@pytest.mark.parametrize(
    ("again", "what"),
    [
        ("lib/one", "lib/one': one name, twice"),
        ("lib/ONE", "lib/one': one name, twice"),
        ("LIB/one", f"'{TOP}/LIB' is needed as a directory, beside member '{TOP}/lib'"),
        ("Lib/other", f"'{TOP}/Lib' is needed as a directory, beside member '{TOP}/lib'"),
    ],
)
def test_a_second_spelling_of_a_name_is_refused(refusal: Refusal, again: str, what: str) -> None:
    error = refusal(bundle(directory("lib"), file("lib/one"), file(again)))
    assert what in error.brief


def test_the_top_directory_given_twice_is_refused(refusal: Refusal) -> None:
    assert "one name, twice" in refusal(bundle(directory(""))).brief


def test_a_member_beneath_a_file_is_refused(refusal: Refusal) -> None:
    error = refusal(bundle(file("x"), file("x/y")))
    assert f"'{TOP}/x' is needed as a directory" in error.brief


def test_a_directory_that_comes_after_its_content_is_refused(refusal: Refusal) -> None:
    assert "one name, twice" in refusal(bundle(file("lib/x"), directory("lib"))).brief


@pytest.mark.parametrize("name", ["RELEASE", "release", "RELEASE/x"])
def test_an_archive_that_brings_a_seal_is_refused(refusal: Refusal, name: str) -> None:
    assert "name of the slot's seal" in refusal(bundle(file(name))).brief


def test_a_name_too_deep_is_refused(refusal: Refusal) -> None:
    assert "deeper than 32" in refusal(bundle(file("/".join("a" * 32)))).brief


# Types


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        (b"1", "a hard link"),
        (b"2", "a symbolic link"),
        (b"3", "a character device"),
        (b"4", "a block device"),
        (b"6", "a FIFO"),
        (b"7", "a contiguous file"),
        (b"g", "a PAX header for all members"),
        (b"K", "a GNU long link name"),
        (b"L", "a GNU long name"),
        (b"S", "a GNU sparse file"),
        (b"\0", "unknown type"),
        (b"D", "unknown type"),
        (b"V", "unknown type"),
        (b"X", "unknown type"),
    ],
)
def test_members_that_are_no_file_or_directory_are_refused_by_name(
    refusal: Refusal, flag: bytes, what: str
) -> None:
    error = refusal(bundle(replace(file("lib/x", b""), type=flag, link=b"target")))
    assert what in error.brief
    assert "lib/x" in error.brief


def test_a_link_chain_as_of_cve_2025_4517_is_refused_at_its_first_link(refusal: Refusal) -> None:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.GNU_FORMAT) as made:
        step = tarfile.TarInfo(f"{TOP}/step")
        step.type, step.linkname = tarfile.SYMTYPE, "d/" * 40 + ".."
        made.addfile(step)
        escape = tarfile.TarInfo(f"{TOP}/step/escape")
        made.addfile(escape)
    error = refusal(buffer.getvalue())
    assert f"'{TOP}/step' is a symbolic link" in error.brief


def test_a_regular_file_that_names_a_link_target_is_refused(refusal: Refusal) -> None:
    assert "no plain member" in refusal(bundle(replace(file("x"), link=b"/etc/shadow"))).brief


def test_a_directory_with_content_is_refused(refusal: Refusal) -> None:
    assert "directory with content" in refusal(bundle(replace(directory("d"), data=b"x"))).brief


# Overrides


def test_a_gnu_long_name_cannot_rename_the_member_after_it(refusal: Refusal) -> None:
    long = Raw(name=b"././@LongLink", type=b"L", data=b"/etc/cron.d/x\0", magic=GNU)
    assert "GNU long name" in refusal(bundle(long, file("x"))).brief


def test_a_gnu_header_with_a_prefix_which_readers_take_differently_is_refused(
    refusal: Refusal,
) -> None:
    odd = replace(file("x"), magic=GNU, prefix=b"elsewhere")
    assert "GNU extensions" in refusal(bundle(odd)).brief


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("path", "/etc/passwd", "disagrees"),
        ("path", f"{TOP}/y", "disagrees"),
        ("size", "4000", "disagrees"),
        ("linkpath", "/etc", "is not taken"),
        ("GNU.sparse.major", "1", "is not taken"),
        ("GNU.sparse.name", f"{TOP}/y", "is not taken"),
        ("SCHILY.xattr.security.capability", "x", "is not taken"),
        ("hdrcharset", "BINARY", "is not taken"),
        ("PATH", f"{TOP}/x", "is not taken"),
    ],
)
def test_a_pax_header_that_says_more_than_the_member_is_refused(
    refusal: Refusal, key: str, value: str, what: str
) -> None:
    error = refusal(bundle(pax((key, value)), file("x")))
    assert f"PAX '{key}' which {what}" in error.brief


@pytest.mark.parametrize(
    "data",
    [
        b"9 mtime=1",
        b"99 mtime=1\n",
        b"0 mtime=1\n",
        b"-1 mtime=1\n",
        b"mtime=1\n",
        b"10 mtime 1\n",
        b"3 \n",
        b"9 mtime=1\n",
        pax_record("mtime", "1") + b"\0",
        pax_record("mtime", "1") * 2,
    ],
)
def test_a_malformed_pax_header_is_refused(refusal: Refusal, data: bytes) -> None:
    bad = Raw(name=b"PaxHeader", type=b"x", data=data)
    assert "PAX header is malformed" in refusal(bundle(bad, file("x"))).brief


def test_a_pax_header_is_bounded_single_and_followed_by_a_member(refusal: Refusal) -> None:
    large = pax(("mtime", "1" * 5000))
    assert "exceeds 4096" in refusal(bundle(large, file("x"))).brief
    assert "precedes another" in refusal(bundle(pax(), pax(), file("x"))).brief
    assert "ustar format" in refusal(bundle(pax())).brief


# Modes


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o100644])
def test_special_mode_bits_are_refused(refusal: Refusal, mode: int) -> None:
    error = refusal(bundle(file("x", mode=mode)))
    assert f"mode {mode:04o}" in error.brief
    assert "chmod" in error.remedy


@pytest.mark.parametrize("member", [file("x", mode=0o666), directory("d", 0o757)])
def test_what_everyone_could_write_is_refused(refusal: Refusal, member: Raw) -> None:
    assert "writable by everyone" in refusal(bundle(member)).brief


def test_the_mode_of_the_top_directory_is_held_to_the_rules_too(refusal: Refusal) -> None:
    assert "writable by everyone" in refusal(packed(directory("", 0o777), program())).brief
