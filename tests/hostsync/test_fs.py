"""The primitives of the disk: whole or not at all, never through a link, errors that help."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostsync.errors import DiskError
from hostsync.fs import Disk
from hostsync.layout import TEMPORARY_PREFIX
from tests.hostsync.world import Killed
from tests.nspawn.namespaces import bind, in_mount_namespace, mount_tmpfs

DISK = Disk()


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids="umask-{:04o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_file_gets_exactly_the_bytes_and_the_mode(tmp_path: Path, umask: None) -> None:
    for wanted in (0o600, 0o644, 0o755):
        DISK.write(tmp_path / "file", [b"one ", b"", b"two"], wanted)
        assert (tmp_path / "file").read_bytes() == b"one two"
        assert mode(tmp_path / "file") == wanted
    assert names(tmp_path) == ["file"]


def test_a_directory_and_its_parents_get_their_modes(tmp_path: Path, umask: None) -> None:
    DISK.make_directory(tmp_path / "a/b/c", 0o700)
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/c")] == [0o755, 0o755, 0o700]
    assert names(tmp_path) == ["a"]


def test_a_directory_that_is_there_keeps_its_mode_and_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o711)
    (tmp_path / "a/file").touch()
    before = mode(tmp_path / "a")
    DISK.make_directory(tmp_path / "a", 0o700)
    assert mode(tmp_path / "a") == before
    assert names(tmp_path / "a") == ["file"]


@pytest.mark.parametrize("error", [Killed(), DiskError("the source is gone"), KeyboardInterrupt()])
def test_a_write_that_ends_half_way_leaves_the_old_content_and_no_trace(
    tmp_path: Path, error: BaseException
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise error

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        DISK.write(path, chunks(), 0o644)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_write_that_is_killed_half_way_leaves_the_old_content_and_one_temporary(
    tmp_path: Path,
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"new"
        os._exit(9)

    path = tmp_path / "file"
    path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        DISK.write(path, chunks(), 0o644)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert path.read_bytes() == b"old"
    (left,) = [name for name in names(tmp_path) if name != "file"]
    assert mode(tmp_path / left) == 0o600
    assert DISK.sweep(tmp_path, TEMPORARY_PREFIX) == (left,)
    assert names(tmp_path) == ["file"]


def test_a_write_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"as it was")
    (tmp_path / "link").symlink_to("precious")
    DISK.write(tmp_path / "link", b"new", 0o644)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"as it was"


def test_whoever_has_the_old_file_open_goes_on_reading_it(tmp_path: Path) -> None:
    DISK.write(tmp_path / "file", b"old", 0o755)
    with open(tmp_path / "file", "rb") as file:
        DISK.write(tmp_path / "file", b"new", 0o755)
        assert file.read() == b"old"


@pytest.mark.parametrize("before", ["nothing", "link", "file"])
def test_a_link_replaces_a_link_or_a_file(tmp_path: Path, before: str) -> None:
    path = tmp_path / "current"
    if before == "link":
        path.symlink_to("blue")
    elif before == "file":
        path.write_bytes(b"old")
    DISK.link(path, "green")
    assert os.readlink(path) == "green"
    assert names(tmp_path) == ["current"]


def test_a_directory_gives_way_to_neither_file_nor_link(tmp_path: Path) -> None:
    (tmp_path / "there/inside").mkdir(parents=True)
    acts: tuple[Callable[[Path], None], ...] = (
        lambda path: DISK.write(path, b"", 0o644),
        lambda path: DISK.link(path, "green"),
    )
    for act in acts:
        with pytest.raises(DiskError, match=rf"{tmp_path}/there.*move the directory aside"):
            act(tmp_path / "there")
    assert names(tmp_path) == ["there"]
    assert names(tmp_path / "there") == ["inside"]


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling link"])
def test_a_move_refuses_to_replace_anything(tmp_path: Path, kind: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    if kind == "file":
        new.write_bytes(b"new")
    elif kind == "directory":
        new.mkdir()
    else:
        new.symlink_to("old" if kind == "link" else "nowhere")
    before = new.lstat().st_ino
    with pytest.raises(DiskError, match=rf"cannot rename old to {new}.*move what is there aside"):
        DISK.move(old, new)
    assert old.read_bytes() == b"old"
    assert new.lstat().st_ino == before


def test_a_move_keeps_the_inode(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    inode = (tmp_path / "old").stat().st_ino
    (tmp_path / "elsewhere").mkdir()
    DISK.move(tmp_path / "old", tmp_path / "elsewhere/new")
    assert (tmp_path / "elsewhere/new").stat().st_ino == inode
    assert names(tmp_path) == ["elsewhere"]


def test_an_exchange_swaps_two_things_or_leaves_both(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "first").touch()
    with pytest.raises(DiskError, match="exchange one and"):
        DISK.exchange(one, other)
    assert names(one) == ["first"]
    other.mkdir()
    DISK.exchange(one, other)
    assert (names(one), names(other)) == ([], ["first"])


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious/inside").mkdir(parents=True)
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/link").symlink_to(tmp_path / "precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    DISK.remove(tmp_path / "tree")
    DISK.remove(tmp_path / "link")
    DISK.remove(tmp_path / "link")
    DISK.remove(tmp_path / "never/was")
    assert names(tmp_path) == ["precious"]
    assert names(tmp_path / "precious") == ["inside"]


def test_a_sweep_takes_what_bears_the_prefix_and_nothing_else(tmp_path: Path) -> None:
    for name in (".tmp-1", ".tmp-2", "tmp-3", "keep"):
        (tmp_path / name).mkdir()
    (tmp_path / ".tmp-4").symlink_to("keep")
    assert DISK.sweep(tmp_path, ".tmp-") == (".tmp-1", ".tmp-2", ".tmp-4")
    assert names(tmp_path) == ["keep", "tmp-3"]


def test_an_error_says_what_where_why_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: dict[str, Callable[[], object]] = {
        "create the directory": lambda: DISK.make_directory(tmp_path / "file"),
        "write": lambda: DISK.write(tmp_path / "file/below", b"", 0o644),
        "link": lambda: DISK.link(tmp_path / "missing/link", "x"),
        "rename": lambda: DISK.move(tmp_path / "missing", tmp_path / "new"),
        "list": lambda: DISK.sweep(tmp_path / "missing", ".x"),
        "flush": lambda: DISK.flush(tmp_path / "missing"),
    }
    for act, doing in told.items():
        with pytest.raises(DiskError, match=rf"cannot {act}.* {tmp_path}/\w+"):
            doing()
    with pytest.raises(DiskError) as blocked:
        told["create the directory"]()
    assert blocked.value.remedy == "move what is there aside"


def test_a_link_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for path in ("link", "link/../link"):
        with pytest.raises(DiskError, match="move what is there aside"):
            DISK.make_directory(tmp_path / path)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_draft_is_a_tree_or_a_file_with_exact_modes_and_can_be_flushed(
    tmp_path: Path, umask: int
) -> None:
    old = os.umask(umask)
    try:
        with DISK.draft(tmp_path / "tree") as draft:
            draft.make_directory("")
            draft.make_directory("a")
            draft.make_directory("a/b")
            draft.write("a/b/c", [b"one ", b"", b"two"], 0o755)
            draft.write("a/d", [], 0o644)
        with DISK.draft(tmp_path / "file") as draft:
            draft.write("", [b"x"], 0o755)
    finally:
        os.umask(old)
    DISK.flush(tmp_path / "tree")
    DISK.flush(tmp_path / "file")
    found = {str(p.relative_to(tmp_path)): f"{p.lstat().st_mode:o}" for p in tmp_path.rglob("*")}
    assert found == {
        "tree": "40755", "tree/a": "40755", "tree/a/b": "40755", "tree/a/b/c": "100755",
        "tree/a/d": "100644", "file": "100755",
    }  # fmt: skip
    assert (tmp_path / "tree/a/b/c").read_bytes() == b"one two"


def test_a_draft_replaces_nothing_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"as it was")
    with DISK.draft(tmp_path / "tree") as draft:
        draft.make_directory("")
        (tmp_path / "tree/link").symlink_to("../elsewhere")
        (tmp_path / "tree/file").symlink_to("../elsewhere/file")
        for path in ("link/file", "link/new", "file", "missing/new"):
            with pytest.raises(DiskError, match=f"cannot write {tmp_path}/tree/{path}"):
                draft.write(path, [b"evil"], 0o644)
        with pytest.raises(DiskError, match="move what is there aside"):
            draft.make_directory("link")
    assert names(tmp_path / "elsewhere") == ["file"]
    assert (tmp_path / "elsewhere/file").read_bytes() == b"as it was"
    with DISK.draft(tmp_path / "tree") as draft, pytest.raises(DiskError, match="move what"):
        draft.make_directory("")


@pytest.mark.root
def test_a_full_disk_is_told_and_leaves_the_old_content_and_no_trace(tmp_path: Path) -> None:
    def act() -> tuple[str, bytes, list[str]]:
        mount_tmpfs(tmp_path, 64 << 10)
        DISK.write(tmp_path / "file", b"old", 0o644)
        with pytest.raises(DiskError) as full:
            DISK.write(tmp_path / "file", (bytes(4096) for _ in range(64)), 0o644)
        return str(full.value), (tmp_path / "file").read_bytes(), names(tmp_path)

    said, content, left = in_mount_namespace(act)
    assert f"cannot write {tmp_path}/file: No space left on device; free space" in said
    assert (content, left) == (b"old", ["file"])


@pytest.mark.root
def test_a_read_only_disk_is_told_with_the_way_out(tmp_path: Path) -> None:
    def act() -> str:
        bind(tmp_path, tmp_path, read_only=True)
        with pytest.raises(DiskError) as refused:
            DISK.make_directory(tmp_path / "slots")
        return str(refused.value)

    assert "Read-only file system; remount it read-write, or configure" in in_mount_namespace(act)
