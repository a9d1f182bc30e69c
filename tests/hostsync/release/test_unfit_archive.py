from __future__ import annotations

import pytest

from hostsync.errors import Reason
from hostsync.model import SlotKind
from tests.hostsync.release.conftest import Refusal
from tests.hostsync.release.tarball import (
    AGENT,
    FOREIGN,
    HOST,
    SCRIPT,
    TOP,
    Raw,
    bundle,
    directory,
    elf,
    file,
    packed,
    program,
    renamed,
)

# Architecture and entry point


@pytest.mark.parametrize(
    "data", [elf(FOREIGN), elf(HOST, bits=1), elf(HOST, order=2), elf(HOST, machine=3)]
)
def test_an_elf_file_of_another_architecture_is_refused_by_name(
    refusal: Refusal, data: bytes
) -> None:
    error = refusal(bundle(file("lib/native.so", data)))
    assert error.reason is Reason.WRONG_ARCHITECTURE
    assert "'lib/native.so'" in error.brief
    assert f"linux-{HOST}" in error.remedy


def test_a_release_for_another_architecture_is_refused_by_its_name(refusal: Refusal) -> None:
    other = f"{AGENT}-linux-{FOREIGN}"
    assert refusal(packed(renamed(directory(""), f"{other}/"))).reason is Reason.WRONG_ARCHITECTURE
    one_file = packed(Raw(name=other.encode(), data=SCRIPT))
    assert refusal(one_file, SlotKind.FILE).reason is Reason.WRONG_ARCHITECTURE


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (directory("lib"), "is missing"),
        (program("bin/other"), "is missing"),
        (program(f"BIN/{AGENT}"), "is missing"),
        (directory(f"bin/{AGENT}"), "is a directory"),
        (file(f"bin/{AGENT}", SCRIPT, 0o644), "is not executable"),
        (program(data=b""), "is empty"),
        (program(data=b"echo 1.0\n"), "is neither an ELF file nor a script"),
    ],
)
def test_a_bundle_whose_entry_point_cannot_run_is_refused(
    refusal: Refusal, entry: Raw, what: str
) -> None:
    assert f"'bin/{AGENT}' {what}" in refusal(packed(directory(""), entry)).brief


# The archive of a single file


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ([directory("")], "is not a regular file"),
        ([program()], "holds only"),
        ([Raw(name=b"hostsync", data=SCRIPT)], "holds only"),
        ([Raw(name=f"./{TOP}".encode(), data=SCRIPT)], "component"),
        ([Raw(name=TOP.encode(), data=SCRIPT), Raw(name=b"README")], "holds only"),
        ([Raw(name=TOP.encode(), data=SCRIPT)] * 2, "one name, twice"),
        ([Raw(name=TOP.encode())], "it is empty"),
        ([Raw(name=TOP.encode(), data=b"text")], "it is neither an ELF file"),
        ([Raw(name=TOP.encode(), data=SCRIPT, mode=b"4755")], "mode 4755"),
        ([Raw(name=TOP.encode(), type=b"2", link=b"/bin/sh")], "a symbolic link"),
        ([], "the archive is empty"),
    ],
)
def test_an_archive_of_anything_but_the_one_file_is_refused(
    refusal: Refusal, members: list[Raw], what: str
) -> None:
    assert what in refusal(packed(*members), SlotKind.FILE).brief


def test_a_regular_file_in_the_place_of_the_top_directory_is_refused(refusal: Refusal) -> None:
    assert "is not a directory" in refusal(packed(Raw(name=TOP.encode(), data=SCRIPT))).brief
