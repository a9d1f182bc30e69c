from __future__ import annotations

import os
import socket
from hashlib import sha256
from pathlib import Path

import pytest

from hostsync.errors import DiskError, Reason, Refused
from hostsync.model import tree_digest
from hostsync.release import scan
from hostsync.release.flaw import Flaw
from hostsync.release.member import DEPTH_LIMIT, MEMBER_LIMIT, PATH_LIMIT
from hostsync.release.tree import read_chunks
from tests.hostsync.release.tarball import RELEASE


def refused(path: Path) -> Refused:
    with pytest.raises(Refused) as caught:
        scan(path)
    assert caught.value.reason is Reason.NOT_OURS
    assert str(path) in caught.value.brief
    return caught.value


def test_a_scan_gives_every_object_sorted_with_its_mode_size_and_content_digest(
    unpacked: Path,
) -> None:
    (unpacked / "lib/data.json").chmod(0o600)
    found = [(e.path, e.is_directory, e.mode, e.size, e.sha256) for e in scan(unpacked)]
    assert found == [
        (
            path,
            data is None,
            0o600 if path == "lib/data.json" else mode,
            len(data or b""),
            "" if data is None else sha256(data).hexdigest(),
        )
        for path, (mode, data) in sorted(RELEASE.items())
    ]


def test_a_scan_of_a_file_gives_one_entry_without_a_path(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"abc")
    (entry,) = scan(file)
    assert (entry.path, entry.is_directory, entry.size) == ("", False, 3)
    assert tree_digest([entry]).hex == sha256(b"abc").hexdigest()


def test_the_order_of_creation_does_not_change_a_scan(tmp_path: Path) -> None:
    names = ["b", "a", "a-b", "c"]
    for top, order in (("one", names), ("two", names[::-1])):
        (tmp_path / top).mkdir()
        for name in order:
            (tmp_path / top / name).write_bytes(name.encode())
    assert scan(tmp_path / "one") == scan(tmp_path / "two")


def test_a_link_in_the_place_of_the_release_is_not_followed(unpacked: Path) -> None:
    link = unpacked.with_name("link")
    link.symlink_to(unpacked)
    assert "symbolic link" in refused(link).brief


@pytest.mark.parametrize("to", ["data.json", "..", "/etc/passwd", "nowhere"])
def test_a_link_beneath_the_release_is_named_and_not_followed(unpacked: Path, to: str) -> None:
    (unpacked / "lib/link").symlink_to(to)
    assert "'lib/link' is a symbolic link" in refused(unpacked).brief


def test_a_fifo_is_named_and_not_waited_for(unpacked: Path) -> None:
    os.mkfifo(unpacked / "lib/pipe")
    assert "'lib/pipe' is a device, FIFO or socket" in refused(unpacked).brief


def test_a_socket_is_named(unpacked: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(unpacked / "s"))
        assert "'s' is a device, FIFO or socket" in refused(unpacked).brief


@pytest.mark.parametrize(
    "name", [b"new\nline", b"caf\xc3\xa9", b"\xff", b"back\\slash", b"\x1b[2J"]
)
def test_a_name_that_no_release_has_is_shown_escaped(unpacked: Path, name: bytes) -> None:
    (unpacked / os.fsdecode(name)).touch()
    brief = refused(unpacked).brief
    assert "printable ASCII" in brief
    assert brief.isascii()
    assert brief.isprintable()


def test_a_directory_too_deep_is_refused_before_descriptors_run_out(tmp_path: Path) -> None:
    deep = tmp_path / "top"
    (deep / "/".join(["d"] * (DEPTH_LIMIT + 1))).mkdir(parents=True)
    assert f"deeper than {DEPTH_LIMIT}" in refused(deep).brief


def test_a_path_too_long_is_refused(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "/".join(["d" * 250] * 5)).mkdir(parents=True)
    assert f"a path of more than {PATH_LIMIT} bytes" in refused(top).brief


@pytest.mark.parametrize("size", [0, 2, 4])
def test_a_file_that_is_not_as_long_as_it_was_is_not_read_as_if_it_were(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with path.open("rb") as file, pytest.raises(Flaw, match="'x' changed its size"):
        list(read_chunks(file.fileno(), size, "x"))


@pytest.mark.slow
def test_a_directory_with_too_many_names_is_refused_and_not_cut_short(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "0").touch()
    for number in range(MEMBER_LIMIT):
        os.link(top / "0", top / f"1{number}")
    assert f"exceeds the {MEMBER_LIMIT} members" in refused(top).brief


def test_a_file_too_large_is_refused_without_being_read(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    with (top / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert "'huge' exceeds the 512 MiB" in refused(top).brief


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="missing: it cannot be read: No such file"):
        scan(tmp_path / "missing")
