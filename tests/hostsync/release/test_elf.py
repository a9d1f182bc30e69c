from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hostsync.errors import Reason, Refused
from hostsync.model import Arch
from hostsync.release.elf import host_arch, machine_arch, read_arch
from tests.hostsync.release.tarball import FOREIGN, HOST, elf


def test_this_interpreter_has_the_architecture_of_this_host() -> None:
    assert read_arch(Path(sys.executable).read_bytes()[:64]) is host_arch()


@pytest.mark.parametrize("machine", ["i686", "armv7l", "riscv64", ""])
def test_a_host_that_has_no_release_is_refused_and_told_which_have(machine: str) -> None:
    with pytest.raises(Refused, match="run on one of x86_64, aarch64") as caught:
        machine_arch(machine)
    assert caught.value.reason is Reason.WRONG_ARCHITECTURE


@pytest.mark.parametrize("arch", [HOST, FOREIGN])
def test_each_architecture_is_read_from_the_machine_field(arch: Arch) -> None:
    assert read_arch(elf(arch)) is arch


@pytest.mark.parametrize("start", [b"", b"\x7f", b"\x7fEL", b"#!/bin/sh\n", b"MZ" + bytes(62)])
def test_what_does_not_start_with_the_magic_is_no_elf_file(start: bytes) -> None:
    assert read_arch(start) is None


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (elf(HOST, bits=1), "64-bit"),
        (elf(HOST, order=2), "little-endian"),
        (elf(HOST, machine=243), "machine 243"),
        (elf(HOST)[:19], "cut short"),
        (b"\x7fELF", "cut short"),
    ],
)
def test_elf_files_of_other_kinds_are_told_from_files_that_are_none(
    header: bytes, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        read_arch(header)
