from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nspawn.errors import Occupied, TooLarge, UnsafePath
from nspawn.rootfs import Directory
from tests.nspawn.conftest import TEMP_PREFIX


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_names_that_are_not_one_component_are_refused(directory: Directory, name: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: directory.put_file(name, b"", 0o644),
        lambda: directory.put_link(name, "x"),
        lambda: directory.put_tree(name, Path("/etc/hostname")),
        lambda: directory.rename("old", name),
        lambda: directory.rename(name, "new"),
        lambda: directory.remove(name),
        lambda: directory.read_link(name),
        lambda: list(directory.scan(name)),
        lambda: directory.sweep(name),
    ]
    for act in acts:
        with pytest.raises(UnsafePath):
            act()


def test_dot_dot_in_the_inner_path_is_refused(rootfs: Path) -> None:
    with pytest.raises(UnsafePath):
        Directory.open(rootfs, Path("/usr/../../host"), create=True)


def test_a_copied_tree_has_the_same_bytes_and_permission_bits(
    directory: Directory, place: Path, release: Path
) -> None:
    (release / "bin" / "agent").chmod(0o6755)
    directory.put_tree("blue", release)

    agent = place / "blue/bin/agent"
    assert agent.read_bytes() == (release / "bin/agent").read_bytes()
    assert stat.S_IMODE(agent.stat().st_mode) == 0o755
    assert stat.S_IMODE((place / "blue/empty").stat().st_mode) == 0o750
    assert (place / "blue/RELEASE").read_text() == "version=1\n"
    assert directory.entries() == {"blue": "directory"}


def test_a_single_file_can_be_copied(directory: Directory, place: Path, release: Path) -> None:
    directory.put_tree("blue", release / "bin/agent")
    assert (place / "blue").read_bytes() == (release / "bin/agent").read_bytes()


def test_a_sparse_file_is_copied_whole(directory: Directory, place: Path, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
    directory.put_tree("sparse", tmp_path / "sparse")
    assert (place / "sparse").read_bytes() == bytes(3 << 20) + b"end"


def test_a_file_that_offers_no_fast_copy_is_copied(directory: Directory, place: Path) -> None:
    # What /proc holds has no size, and copy_file_range says that there is nothing.
    directory.put_tree("version", Path("/proc/version"))
    assert (place / "version").read_bytes() == Path("/proc/version").read_bytes()


@pytest.mark.parametrize("existing", ["file", "directory", "link"])
def test_a_tree_never_replaces_what_is_there(
    directory: Directory, place: Path, release: Path, outside: Path, existing: str
) -> None:
    match existing:
        case "file":
            (place / "blue").write_text("guest")
        case "directory":
            (place / "blue").mkdir()
        case _:
            (place / "blue").symlink_to(outside)
    before = (place / "blue").lstat()
    with pytest.raises(Occupied, match="blue"):
        directory.put_tree("blue", release)
    assert (place / "blue").lstat() == before
    assert list(directory.entries()) == ["blue"]


def _link(path: Path) -> None:
    path.symlink_to("/etc/shadow")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _control_character(path: Path) -> None:
    path.with_name("two\nlines").write_text("")


@pytest.mark.parametrize("plant", [_link, _fifo, _control_character])
def test_a_tree_with_anything_but_files_and_directories_is_not_copied_at_all(
    directory: Directory, release: Path, plant: Callable[[Path], None]
) -> None:
    plant(release / "bin" / "zzz")
    with pytest.raises(UnsafePath):
        directory.put_tree("blue", release)
    assert directory.entries() == {}


def test_a_missing_source_leaves_nothing_behind(directory: Directory, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        directory.put_tree("blue", tmp_path / "missing")
    assert directory.entries() == {}


def test_a_file_is_replaced_whole_with_its_mode(directory: Directory, place: Path) -> None:
    directory.put_file("WANTED", b"one", 0o644)
    old = (place / "WANTED").open("rb")
    directory.put_file("WANTED", b"two", 0o600)
    with old:
        assert old.read() == b"one"
    assert (place / "WANTED").read_bytes() == b"two"
    assert stat.S_IMODE((place / "WANTED").stat().st_mode) == 0o600
    assert list(directory.entries()) == ["WANTED"]


def test_writing_where_a_link_stands_replaces_the_link_and_not_its_target(
    directory: Directory, place: Path, outside: Path
) -> None:
    (place / "WANTED").symlink_to(outside / "precious")
    directory.put_file("WANTED", b"ours", 0o644)
    assert (outside / "precious").read_text() == "as it was"
    assert (place / "WANTED").read_bytes() == b"ours"


def test_a_file_never_replaces_a_directory(directory: Directory, place: Path) -> None:
    (place / "WANTED").mkdir()
    with pytest.raises(UnsafePath, match="WANTED"):
        directory.put_file("WANTED", b"", 0o644)
    assert list(directory.entries()) == ["WANTED"]


def test_a_link_replaces_a_link_and_is_read_back(directory: Directory) -> None:
    assert directory.read_link("current") is None
    directory.put_link("current", "blue")
    directory.put_link("current", "green")
    assert directory.read_link("current") == "green"
    assert directory.entries() == {"current": "link"}


def test_a_link_replaces_a_file_only_when_told(directory: Directory, place: Path) -> None:
    (place / "current").write_text("old install")
    with pytest.raises(UnsafePath, match="current"):
        directory.put_link("current", "blue")
    assert (place / "current").read_text() == "old install"
    directory.put_link("current", "blue", replace_file=True)
    assert directory.read_link("current") == "blue"


@pytest.mark.parametrize("make", [Path.mkdir, _fifo])
def test_a_link_never_replaces_a_directory_or_a_special_file(
    directory: Directory, place: Path, make: Callable[[Path], None]
) -> None:
    make(place / "current")
    with pytest.raises(UnsafePath, match="current"):
        directory.put_link("current", "blue", replace_file=True)
    assert list(directory.entries()) == ["current"]


def test_reading_a_link_where_a_file_stands_is_refused(directory: Directory) -> None:
    directory.put_file("current", b"", 0o644)
    with pytest.raises(UnsafePath):
        directory.read_link("current")


def test_rename_moves_but_never_over_something(directory: Directory) -> None:
    directory.put_file("a", b"a", 0o644)
    directory.put_file("b", b"b", 0o644)
    with pytest.raises(Occupied):
        directory.rename("a", "b")
    directory.rename("a", "c")
    assert directory.read_file("b", 10) == b"b"
    assert directory.read_file("c", 10) == b"a"
    with pytest.raises(FileNotFoundError):
        directory.rename("a", "d")


def test_a_file_is_read_here_or_one_directory_down(directory: Directory, release: Path) -> None:
    directory.put_tree("blue", release)
    directory.put_file("WANTED", b"wanted", 0o644)
    assert directory.read_file("blue/RELEASE", 100) == b"version=1\n"
    assert directory.read_file("WANTED", 6) == b"wanted"
    assert directory.read_file("green/RELEASE", 100) is None
    assert directory.read_file("blue/missing", 100) is None
    with pytest.raises(TooLarge, match="5 bytes"):
        directory.read_file("WANTED", 5)


def test_reading_follows_no_link_and_blocks_on_no_fifo(
    directory: Directory, place: Path, outside: Path
) -> None:
    (place / "file").symlink_to(outside / "precious")
    (place / "up").symlink_to(outside)
    os.mkfifo(place / "fifo")
    (place / "dir").mkdir()
    (place / "dir/file").touch()
    (place / "aside").symlink_to("dir")
    for path in ("aside/file", "file", "up/precious", "fifo", "dir", "fifo/x", "../kube2"):
        with pytest.raises(UnsafePath):
            directory.read_file(path, 100)


@pytest.mark.root
def test_a_device_is_neither_read_nor_scanned(directory: Directory, place: Path) -> None:
    os.mknod(place / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with pytest.raises(UnsafePath):
        directory.read_file("zero", 10)
    with pytest.raises(UnsafePath):
        list(directory.scan("zero"))
    assert directory.entries() == {"zero": "other"}


def test_sweep_removes_leftovers_and_nothing_else(directory: Directory, place: Path) -> None:
    (place / f"{TEMP_PREFIX}1/deep").mkdir(parents=True)
    (place / f"{TEMP_PREFIX}2").write_text("half")
    (place / "blue").mkdir()
    assert directory.sweep(TEMP_PREFIX) == (f"{TEMP_PREFIX}1", f"{TEMP_PREFIX}2")
    assert directory.entries() == {"blue": "directory"}


def test_listing_is_bounded(directory: Directory) -> None:
    for name in "abc":
        directory.put_file(name, b"", 0o644)
    with pytest.raises(TooLarge):
        directory.entries(limit=2)
    assert list(directory.entries(limit=3)) != []


def test_free_space_is_that_of_the_filesystem(directory: Directory, place: Path) -> None:
    room = os.statvfs(place)
    assert abs(directory.free_bytes() - room.f_bavail * room.f_frsize) < 1 << 30
    assert directory.read_only is False


@pytest.mark.root
def test_a_file_can_belong_to_the_root_of_a_machine_whose_users_are_shifted(
    directory: Directory, rootfs: Path, place: Path
) -> None:
    os.chown(rootfs, 65536, 65537)
    directory.put_file("ours", b"", 0o600)
    directory.put_file("theirs", b"", 0o600, as_root_inside=True)
    ours, theirs = (place / "ours").stat(), (place / "theirs").stat()
    assert (ours.st_uid, ours.st_gid) == (os.geteuid(), os.getegid())
    assert (theirs.st_uid, theirs.st_gid) == (65536, 65537)
    assert stat.S_IMODE(theirs.st_mode) == 0o600
