from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostsync.errors import Refused
from hostsync.model import SlotKind
from hostsync.release import Inspected, open_candidate
from tests.hostsync.release.tarball import AGENT, RELEASE, TOP, Tree, tree_archive

Refusal = Callable[..., Refused]


def everything(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every object beneath `root` with its mode and content, for comparing before and after."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = path.readlink() if path.is_symlink() else path
        text = path.read_bytes() if path.is_file() and not path.is_symlink() else str(content)
        found[str(path.relative_to(root))] = (mode, text)
    return found


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the release is to be staged: nothing is there, its parent is."""
    slots = tmp_path / "slots"
    slots.mkdir()
    return slots / "blue"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The small good release as a directory."""
    top = tmp_path / "unpacked"
    write_tree(top)
    return top


def write_tree(top: Path, tree: Tree = RELEASE) -> None:
    top.mkdir()
    for path, (mode, data) in tree.items():
        if data is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(data)
        (top / path).chmod(mode)


def inspected(path: Path, kind: SlotKind = SlotKind.BUNDLE) -> Inspected:
    with open_candidate(path, agent=AGENT, kind=kind) as candidate:
        return candidate.inspected


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / f"{TOP}.tar.gz"
    path.write_bytes(tree_archive())
    return path


@pytest.fixture(params=["archive", "directory"])
def source(request: pytest.FixtureRequest, archive: Path, unpacked: Path) -> Path:
    """The same release in either form of a bundle."""
    return archive if request.param == "archive" else unpacked


@pytest.fixture
def refusal(tmp_path: Path) -> Refusal:
    """Offer the bytes as a candidate; the refusal, which named the path and changed nothing."""

    def offer(data: bytes, kind: SlotKind = SlotKind.BUNDLE) -> Refused:
        path = tmp_path / "candidate.tar.gz"
        path.write_bytes(data)
        before = everything(tmp_path)
        with pytest.raises(Refused) as caught, open_candidate(path, agent=AGENT, kind=kind):
            pass
        assert everything(tmp_path) == before
        assert caught.value.brief.startswith(f"{path}: ")
        assert caught.value.remedy
        return caught.value

    return offer
