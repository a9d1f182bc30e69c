from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nspawn.errors import TooLarge, UnsafePath
from nspawn.rootfs import Directory, ScannedFile


def test_a_tree_is_listed_in_order_with_modes_sizes_and_digests(
    directory: Directory, place: Path
) -> None:
    (place / "blue/bin").mkdir(parents=True, mode=0o755)
    (place / "blue/bin").chmod(0o755)
    (place / "blue/bin/agent").write_bytes(b"agent")
    (place / "blue/bin/agent").chmod(0o4755)
    (place / "blue/RELEASE").write_bytes(b"")
    (place / "blue/RELEASE").chmod(0o644)
    empty, agent = (hashlib.sha256(content).hexdigest() for content in (b"", b"agent"))
    assert list(directory.scan("blue")) == [
        ScannedFile(path="RELEASE", kind="file", mode=0o644, size=0, sha256=empty),
        ScannedFile(path="bin", kind="directory", mode=0o755, size=0, sha256=""),
        ScannedFile(path="bin/agent", kind="file", mode=0o4755, size=5, sha256=agent),
    ]


def test_a_single_file_is_listed_with_an_empty_path(directory: Directory) -> None:
    directory.put_file("blue", b"agent", 0o755)
    (found,) = directory.scan("blue")
    assert (found.path, found.kind, found.size) == ("", "file", 5)


def test_scanning_what_is_not_there_says_so(directory: Directory) -> None:
    with pytest.raises(FileNotFoundError):
        list(directory.scan("blue"))


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.symlink_to("/etc/passwd"),
        os.mkfifo,
        lambda path: path.with_name("a\nf 0755 00 agent").write_text(""),
        lambda path: path.with_name("\udcff").touch(),
    ],
    ids=["link", "fifo", "newline", "no-utf8"],
)
def test_anything_that_could_mislead_is_refused(
    directory: Directory, place: Path, plant: Callable[[Path], object]
) -> None:
    (place / "blue").mkdir()
    plant(place / "blue" / "planted")
    with pytest.raises(UnsafePath):
        list(directory.scan("blue"))


def test_a_link_at_the_top_is_refused(directory: Directory, place: Path, outside: Path) -> None:
    (place / "blue").symlink_to(outside)
    with pytest.raises(UnsafePath):
        list(directory.scan("blue"))


def test_a_giant_sparse_file_is_refused_before_it_is_read(
    directory: Directory, place: Path
) -> None:
    with (place / "blue").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(TooLarge, match="blue"):
        list(directory.scan("blue"))


def test_the_caller_bounds_bytes_and_entries(directory: Directory, place: Path) -> None:
    (place / "blue").mkdir()
    for name in "abc":
        (place / "blue" / name).write_bytes(b"12345")
    assert len(list(directory.scan("blue", limit_bytes=15, limit_entries=3))) == 3
    with pytest.raises(TooLarge):
        list(directory.scan("blue", limit_bytes=14))
    with pytest.raises(TooLarge):
        list(directory.scan("blue", limit_entries=2))


def test_a_tree_too_deep_is_refused(directory: Directory, place: Path) -> None:
    path = place / "blue"
    for _ in range(70):
        path = path / "d"
    path.mkdir(parents=True)
    with pytest.raises(UnsafePath, match="deeper"):
        list(directory.scan("blue"))


NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)
COMPONENT = NAMES.filter(lambda n: "/" not in n and n not in {".", ".."} and len(n.encode()) < 200)
FILES = st.tuples(st.binary(max_size=64), st.sampled_from([0o644, 0o755, 0o600]))
Tree = dict[str, "tuple[bytes, int] | Tree"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(COMPONENT, FILES, max_size=3),
    lambda inner: st.dictionaries(COMPONENT, FILES | inner, max_size=3),
    max_leaves=10,
)


def _grow(top: Path, tree: Tree) -> None:
    top.mkdir()
    for name, node in tree.items():
        if isinstance(node, dict):
            _grow(top / name, node)
        else:
            content, mode = node
            (top / name).write_bytes(content)
            (top / name).chmod(mode)


@pytest.mark.slow
@given(tree=TREES)
@settings(max_examples=40, deadline=None)
def test_a_copy_scans_exactly_like_its_source(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "root"
        root.mkdir()
        _grow(Path(base) / "source", tree)
        with (
            Directory.open(Path(base), Path("/"), create=False) as host,
            Directory.open(root, Path("/opt"), create=True) as mirror,
        ):
            mirror.put_tree("copy", Path(base) / "source")
            assert list(mirror.scan("copy")) == list(host.scan("source"))
