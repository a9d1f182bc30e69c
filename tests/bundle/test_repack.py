import marshal
import subprocess
from pathlib import Path
from types import CodeType

import pytest

import bundle
from bundle import bytecode, source, sources
from bundle.archive import Release, read_archive, write_archive
from bundle.errors import ArchiveError, OptionError
from bundle.interpreter import Interpreter
from bundle.tree import Entry
from tests.bundle.conftest import VERSION, write_source

MODULE = "lib/hostsync/hostsync/cli.py"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, own_interpreter: Interpreter) -> Path:
    """An archive with as little in it as a release can have."""
    work = tmp_path_factory.mktemp("small")
    tree = {
        **source.collect(write_source(work / "source"), VERSION),
        f"python/lib/python{own_interpreter.version}/os.py": Entry(content=b""),
        "bin/hostsync": Entry(content=b"#!/bin/sh\n", executable=True),
        "bin/hostsync-credential": Entry(content=b"#!/bin/sh\n", executable=True),
    }
    tree = bytecode.compile_tree(tree, own_interpreter)
    write_archive(Release(top="hostsync-linux-amd64", tree=tree, mtime=7), work / "small.tar.gz")
    return work / "small.tar.gz"


def test_without_changes_the_bytes_stay(small: Path, tmp_path: Path) -> None:
    same = bundle.repack(small, tmp_path / "same.tar.gz")
    assert same.read_bytes() == small.read_bytes()


def test_a_new_version_is_in_both_modules_and_in_their_bytecode(
    small: Path, tmp_path: Path
) -> None:
    tree = read_archive(bundle.repack(small, tmp_path / "new.tar.gz", version="2.0.0")).tree
    for name in source.version_files():
        assert b'VERSION = "2.0.0"' in sources.unpack(tree)[name]
        pyc = tree[bytecode.compiled_name(name)].content
        code = marshal.loads(pyc[16:])
        assert isinstance(code, CodeType)
        assert "2.0.0" in code.co_consts
        assert 7 in code.co_consts


def test_replaced_and_added_modules_come_with_their_bytecode(small: Path, tmp_path: Path) -> None:
    replace = {MODULE: b"'replaced'\n", "lib/hostsync/new.py": b"'new'\n", "share/note": b"text"}
    tree = read_archive(bundle.repack(small, tmp_path / "new.tar.gz", replace=replace)).tree
    assert tree["share/note"].content == b"text"
    for name, text in ((MODULE, b"replaced"), ("lib/hostsync/new.py", b"new")):
        assert name not in tree
        assert sources.unpack(tree)[name] == replace[name]
        assert text in tree[bytecode.compiled_name(name)].content


def test_a_module_that_does_not_compile_fails_when_it_is_imported(
    small: Path, tmp_path: Path, own_interpreter: Interpreter
) -> None:
    archive = bundle.repack(small, tmp_path / "bad.tar.gz", replace={MODULE: b"def :\n"})
    package = tmp_path / "hostsync"
    for name, entry in read_archive(archive).tree.items():
        if name.startswith("lib/hostsync/hostsync/"):
            path = package / name.removeprefix("lib/hostsync/hostsync/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.content)
    query = "import sys; sys.path.append(sys.argv[1]); import hostsync.cli"
    command = [str(own_interpreter.executable), "-I", "-S", "-c", query, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No module named 'hostsync.cli'" in done.stderr


def test_programs_keep_their_mode_and_a_mode_can_be_given(small: Path, tmp_path: Path) -> None:
    archive = bundle.repack(
        small,
        tmp_path / "new.tar.gz",
        replace={"bin/hostsync": b"#!/bin/sh\nexit 1\n", "bin/more": b"#!/bin/sh\n"},
        modes={"bin/hostsync-credential": 0o644, "bin/more": 0o755},
    )
    tree = read_archive(archive).tree
    assert {name: oct(tree[name].mode) for name in tree if name.startswith("bin/")} == {
        "bin/hostsync": "0o755",
        "bin/hostsync-credential": "0o644",
        "bin/more": "0o755",
    }


@pytest.mark.parametrize(
    ("replace", "modes", "complaint"),
    [
        ({"../outside": b""}, {}, "not plain"),
        ({"BIN/hostsync": b""}, {}, "case"),
        ({}, {"bin/hostsync": 0o4755}, "mode 4755"),
        ({}, {"bin/absent": 0o755}, "no bin/absent"),
    ],
)
def test_what_no_release_can_hold_is_refused(
    small: Path, tmp_path: Path, replace: dict[str, bytes], modes: dict[str, int], complaint: str
) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        bundle.repack(small, tmp_path / "new.tar.gz", replace=replace, modes=modes)
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_is_none_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a version"):
        bundle.repack(small, tmp_path / "new.tar.gz", version="new")


def test_a_release_of_another_python_is_refused(small: Path, tmp_path: Path) -> None:
    release = read_archive(small)
    tree = {name: entry for name, entry in release.tree.items() if not name.endswith(".pyc")}
    write_archive(Release(top=release.top, tree=tree, mtime=7), tmp_path / "other.tar.gz")
    with pytest.raises(ArchiveError, match="holds another Python"):
        bundle.repack(tmp_path / "other.tar.gz", tmp_path / "new.tar.gz", version="2.0.0")


@pytest.mark.parametrize("kept", [0, 5, -9])
def test_a_release_without_its_whole_sources_is_refused(
    small: Path, tmp_path: Path, kept: int
) -> None:
    release = read_archive(small)
    cut = Entry(content=release.tree[sources.SOURCES].content[:kept])
    tree = {**release.tree, sources.SOURCES: cut}
    if not kept:
        del tree[sources.SOURCES]
    write_archive(Release(top=release.top, tree=tree, mtime=7), tmp_path / "bare.tar.gz")
    with pytest.raises(ArchiveError, match=r"no readable share/source\.tar\.gz"):
        bundle.repack(tmp_path / "bare.tar.gz", tmp_path / "new.tar.gz", version="2.0.0")
