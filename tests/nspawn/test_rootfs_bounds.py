from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nspawn.errors import NoSpace, RootfsError, UnsafePath
from nspawn.rootfs import Directory
from tests.nspawn.conftest import INNER
from tests.nspawn.namespaces import bind, in_mount_namespace, mount_tmpfs


def test_missing_directories_are_created_readable_for_everybody(rootfs: Path, place: Path) -> None:
    before = os.umask(0o077)
    try:
        Directory.open(rootfs, INNER, create=True).__exit__()
    finally:
        os.umask(before)
    for path in (place, place.parent):
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o755, os.geteuid())


def test_a_missing_directory_is_not_created_unasked(rootfs: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Directory.open(rootfs, INNER, create=False)
    assert not (rootfs / "usr/local/lib").exists()


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("create", [True, False])
def test_a_link_planted_at_any_component_is_refused_and_not_followed(
    rootfs: Path, outside: Path, depth: int, create: bool
) -> None:
    parts = INNER.parts[1:]
    planted = rootfs.joinpath(*parts[:depth])
    if planted.exists():
        planted.rename(rootfs / "moved")
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.symlink_to(outside)
    outside.joinpath(*parts[depth:]).mkdir(parents=True, exist_ok=True)
    before = sorted(outside.rglob("*"))

    with pytest.raises(UnsafePath, match=str(planted)):
        Directory.open(rootfs, INNER, create=create)
    assert sorted(outside.rglob("*")) == before


def test_a_link_to_a_neighbour_inside_the_rootfs_is_refused_as_well(rootfs: Path) -> None:
    (rootfs / "usr/elsewhere").mkdir()
    (rootfs / "usr/local").rename(rootfs / "usr/moved")
    (rootfs / "usr/local").symlink_to("elsewhere")
    with pytest.raises(UnsafePath, match="usr/local"):
        Directory.open(rootfs, INNER, create=True)
    assert list((rootfs / "usr/elsewhere").iterdir()) == []


@pytest.mark.root
def test_a_full_filesystem_is_named_and_left_clean(rootfs: Path, release: Path) -> None:
    def act() -> tuple[str, dict[str, str], bool]:
        mount_tmpfs(rootfs, 200_000)
        (release / "large").write_bytes(bytes(300_000))
        with Directory.open(rootfs, INNER, create=True) as directory:
            free = directory.free_bytes()
            with pytest.raises(NoSpace) as tree:
                directory.put_tree("blue", release)
            with pytest.raises(NoSpace):
                directory.put_file("large", bytes(300_000), 0o644)
            return str(tree.value), dict(directory.entries()), free == directory.free_bytes()

    message, left, all_given_back = in_mount_namespace(act)
    assert str(rootfs) in message
    assert left == {}
    assert all_given_back


@pytest.mark.root
def test_a_read_only_mount_is_told_and_refuses_with_a_remedy(rootfs: Path) -> None:
    def act() -> str:
        bind(rootfs, rootfs, read_only=True)
        with Directory.open(rootfs, Path("/usr/local"), create=False) as directory:
            assert directory.read_only is True
            with pytest.raises(RootfsError) as refused:
                directory.put_file("x", b"", 0o644)
            return str(refused.value)

    assert "read-write" in in_mount_namespace(act)


@pytest.mark.root
def test_everything_written_belongs_to_root_even_under_a_group_directory(
    rootfs: Path, place: Path, release: Path
) -> None:
    os.chown(rootfs / "usr/local", 1000, 1000)
    (rootfs / "usr/local").chmod(0o2777)
    os.chown(release / "RELEASE", 1000, 1000)
    with Directory.open(rootfs, INNER, create=True) as directory:
        directory.put_tree("blue", release)
        directory.put_file("WANTED", b"", 0o644)
    owners = {(p.stat().st_uid, p.stat().st_gid) for p in (place.parent, *place.rglob("*"))}
    assert owners == {(0, 0)}
