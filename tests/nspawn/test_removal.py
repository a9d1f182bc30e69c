from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from nspawn.errors import UnsafePath
from nspawn.rootfs import Directory
from tests.nspawn.namespaces import bind, in_mount_namespace


def test_removing_is_idempotent(directory: Directory, place: Path) -> None:
    (place / "blue").mkdir()
    directory.remove("blue")
    directory.remove("blue")
    assert directory.entries() == {}


def test_links_are_removed_and_never_followed(
    directory: Directory, place: Path, outside: Path
) -> None:
    (place / "blue/sub").mkdir(parents=True)
    (place / "blue/sub/file").symlink_to(outside / "precious")
    (place / "blue/dir").symlink_to(outside)
    (place / "link").symlink_to(outside)
    os.mkfifo(place / "blue/fifo")
    directory.remove("blue")
    directory.remove("link")
    assert directory.entries() == {}
    assert (outside / "precious").read_text() == "as it was"


def test_a_directory_without_permissions_is_removed(directory: Directory, place: Path) -> None:
    (place / "blue/closed").mkdir(parents=True)
    (place / "blue/closed").chmod(0o000 if os.geteuid() == 0 else 0o700)
    directory.remove("blue")
    assert directory.entries() == {}


@pytest.mark.slow
def test_a_tree_of_any_depth_is_removed_with_few_descriptors(
    directory: Directory, place: Path
) -> None:
    (place / "blue").mkdir()
    fd = os.open(place / "blue", os.O_PATH)
    for _ in range(400):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        directory.remove("blue")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert directory.entries() == {}


@pytest.mark.slow
def test_a_directory_of_many_entries_is_emptied(directory: Directory, place: Path) -> None:
    (place / "blue").mkdir()
    for number in range(300):
        (place / "blue" / str(number)).touch()
    directory.remove("blue")
    assert directory.entries() == {}


@pytest.mark.root
@pytest.mark.parametrize("where", ["blue", "blue/sub", "blue/sub/file"])
def test_a_mount_point_is_neither_removed_nor_entered(
    rootfs: Path, place: Path, outside: Path, where: str
) -> None:
    # It is of the same filesystem, so comparing st_dev would not have noticed.
    (place / "blue/sub").mkdir(parents=True)
    (place / "blue/sub/file").touch()

    def act() -> None:
        source = outside / "precious" if where.endswith("file") else outside
        bind(source, place / where)
        with (
            Directory.open(rootfs, Path("/usr/local/lib/agent"), create=False) as directory,
            pytest.raises(UnsafePath, match="mount point"),
        ):
            directory.remove("blue")

    in_mount_namespace(act)
    assert (outside / "precious").read_text() == "as it was"
