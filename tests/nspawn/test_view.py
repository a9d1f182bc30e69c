from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nspawn import _mounts, view
from nspawn.errors import NoSuchMachine, TooLarge, UnsafePath
from nspawn.view import View, look
from tests.nspawn.machines import Bind, running

SLOTS = Path("/usr/local/lib/agent")
pytestmark = pytest.mark.root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "slots"
    path.mkdir()
    (path / "RELEASE").write_text("host")
    return path


@pytest.fixture
def beneath(rootfs: Path) -> Path:
    path = rootfs / "usr/local/lib/agent"
    path.mkdir(parents=True)
    (path / "RELEASE").write_text("mirror")
    return path


@pytest.mark.slow
def test_a_bind_is_known_by_identity_and_told_with_its_mode_and_depth(
    rootfs: Path, source: Path, beneath: Path
) -> None:
    bind = Bind(source=source, destination=str(SLOTS))
    writable = replace(bind, read_only=False)
    for binds, expected in (
        ((bind,), View(kind="bind", read_only=True, depth=1)),
        ((writable,), View(kind="bind", read_only=False, depth=1)),
        ((bind, bind, bind), View(kind="bind", read_only=True, depth=3)),
        ((), View(kind="underlying", read_only=False, depth=0)),
    ):
        with running(rootfs, *binds) as machine:
            assert look(machine, SLOTS, source) == expected


def test_a_bind_of_something_else_is_not_taken_for_ours(
    rootfs: Path, source: Path, beneath: Path, outside: Path
) -> None:
    with running(rootfs, Bind(source=outside, destination=str(SLOTS))) as machine:
        assert look(machine, SLOTS, source) == View(kind="underlying", read_only=True, depth=1)
        assert look(machine, SLOTS, source / "missing").kind == "underlying"


def test_a_bind_further_up_shows_the_source_but_is_no_mount_there(
    rootfs: Path, beneath: Path, tmp_path: Path
) -> None:
    (tmp_path / "lib/agent").mkdir(parents=True)
    with running(rootfs, Bind(source=tmp_path / "lib", destination="/usr/local/lib")) as machine:
        seen = look(machine, SLOTS, tmp_path / "lib/agent")
    assert seen == View(kind="bind", read_only=True, depth=0)


def test_a_bound_file_is_seen_as_such(rootfs: Path, source: Path, beneath: Path) -> None:
    bind = Bind(source=source / "RELEASE", destination=str(SLOTS / "RELEASE"))
    with running(rootfs, bind) as machine:
        seen = look(machine, SLOTS / "RELEASE", source / "RELEASE")
    assert seen == View(kind="bind", read_only=True, depth=1)


def test_a_mount_point_with_odd_characters_is_found(rootfs: Path, source: Path) -> None:
    odd = "/a b\tc\\d\ne#"
    (rootfs / odd[1:]).mkdir()
    with running(rootfs, Bind(source=source, destination=odd)) as machine:
        assert look(machine, Path(odd), source) == View(kind="bind", read_only=True, depth=1)


def test_nothing_a_file_for_a_parent_and_a_loop_are_all_absent(rootfs: Path, source: Path) -> None:
    (rootfs / "file").touch()
    (rootfs / "loop").symlink_to("loop")
    with running(rootfs) as machine:
        for path in ("/usr/local/lib/agent", "/file/x", "/loop", "/loop/x"):
            assert look(machine, Path(path), source).kind == "absent"


def test_links_lead_where_they_lead_for_the_machine(
    rootfs: Path, source: Path, beneath: Path, outside: Path
) -> None:
    (rootfs / "abs").symlink_to("/usr/local/lib/agent")
    (rootfs / "up").symlink_to(f"../../../../../../..{outside}/precious")
    (rootfs / "host").symlink_to(outside / "precious")
    with running(rootfs, Bind(source=source, destination=str(SLOTS))) as machine:
        assert look(machine, Path("/abs"), source) == View(kind="bind", read_only=True, depth=1)
        assert view.read(machine, Path("/abs/RELEASE"), 100) == b"host"
        for link in ("/up", "/host"):
            with pytest.raises(FileNotFoundError):
                view.read(machine, Path(link), 100)
        assert view.readlink(machine, Path("/abs")) == "/usr/local/lib/agent"


def test_what_lies_beneath_is_read_when_nothing_is_bound(rootfs: Path, beneath: Path) -> None:
    with running(rootfs) as machine:
        assert view.read(machine, SLOTS / "RELEASE", 6) == b"mirror"
        with pytest.raises(TooLarge):
            view.read(machine, SLOTS / "RELEASE", 5)


def test_nothing_but_a_regular_file_is_read(rootfs: Path, beneath: Path) -> None:
    os.mkfifo(beneath / "fifo")
    os.mknod(beneath / "zero", 0o20666, os.makedev(1, 5))
    (beneath / "loop").symlink_to("loop")
    with running(rootfs) as machine:
        for name in ("fifo", "zero", "loop", ".", "RELEASE/x"):
            with pytest.raises(UnsafePath, match="kube1"):
                view.read(machine, SLOTS / name, 100)
        with pytest.raises(UnsafePath):
            view.readlink(machine, SLOTS / "RELEASE")
        with pytest.raises(FileNotFoundError):
            view.readlink(machine, SLOTS / "missing")


def test_a_machine_that_ended_is_not_looked_at(rootfs: Path, source: Path) -> None:
    with running(rootfs) as machine:
        pass
    with pytest.raises(NoSuchMachine, match="kube1"):
        look(machine, SLOTS, source)


def test_another_process_with_the_same_number_is_not_looked_at(rootfs: Path, source: Path) -> None:
    with running(rootfs) as machine, pytest.raises(NoSuchMachine):
        look(msgspec.structs.replace(machine, leader_start=machine.leader_start - 1), SLOTS, source)


def test_a_hidden_mount_with_the_same_path_does_not_count_as_stacked() -> None:
    table = (
        b"1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        b"2 1 8:1 /a /opt/x ro - ext4 /dev/sda rw\n"
        b"3 1 8:1 /b /opt rw shared:1 master:2 - ext4 /dev/sda rw\n"
        b"4 3 8:1 /c /opt/x ro,nosuid - ext4 /dev/sda rw\n"
        b"5 4 0:9 / /opt/x rw - tmpfs none ro,size=1k\n"
    )
    mounts = _mounts.parse(table)
    assert [_mounts.depth(mounts, mounts[number]) for number in (2, 4, 5)] == [1, 1, 2]
    assert [mounts[number].read_only for number in (1, 2, 5)] == [False, True, True]
