from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hostsync.errors import DiskError, Failed, Reason, Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind, tree_digest
from hostsync.release import open_candidate, scan
from tests.hostsync.release.conftest import everything, inspected, write_tree
from tests.hostsync.release.tarball import (
    AGENT,
    RELEASE,
    SCRIPT,
    TOP,
    Raw,
    bundle,
    file,
)

BUNDLE = SlotKind.BUNDLE


def replaced(path: Path) -> None:
    """Put another, equally good release at the path."""
    path.rename(path.with_name("aside"))
    if path.name == "unpacked":
        write_tree(path, {**RELEASE, "lib/data.json": (0o644, b"[]\n")})
    else:
        path.write_bytes(bundle())


def test_the_opened_object_is_staged_although_another_took_its_path(
    source: Path, target: Path
) -> None:
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        replaced(source)
        candidate.stage(target, Disk())
        assert tree_digest(scan(target)) == candidate.inspect().content_digest
    assert inspected(source).content_digest != candidate.inspect().content_digest


def overwritten(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def restage_fails(source: Path, target: Path, change: Callable[[], None], *, during: bool) -> str:
    """Change the source after it was inspected, before or while it is unpacked.

    The failure's text, which left nothing.
    """
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        candidate.inspect()
        pending = [change]
        if not during:
            pending.pop()()

        def on_bytes(_done: int) -> None:
            if pending:
                pending.pop()()

        with pytest.raises(Failed) as caught:
            candidate.unpack(target, Disk(), on_bytes=on_bytes)
    assert not isinstance(caught.value, DiskError)
    assert os.listdir(target.parent) == []
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        bundle(),
        bundle(file("lib/evil", b"evil")),
        bundle()[:-1],
        b"",
        b"garbage",
        bundle(Raw(name=f"{TOP}/link".encode(), type=b"2", link=b"/etc")),
    ],
)
def test_an_archive_overwritten_in_place_fails_and_leaves_nothing(
    archive: Path, target: Path, data: bytes
) -> None:
    text = restage_fails(archive, target, lambda: overwritten(archive, data), during=False)
    assert "the source changed after it was inspected" in text


def stored(data: bytes) -> bytes:
    """A release that is as long in its archive whatever the data, of a given length, is."""
    plain = gzip.decompress(bundle(file("lib/x", data)))
    return gzip.compress(plain, compresslevel=0, mtime=0)


def test_an_archive_replaced_in_place_by_one_of_equal_size_fails(
    archive: Path, target: Path
) -> None:
    one, two = stored(b"good"), stored(b"evil")
    assert len(one) == len(two)
    archive.write_bytes(one)
    text = restage_fails(archive, target, lambda: overwritten(archive, two), during=False)
    assert "it has other bytes than before: the source changed" in text


@pytest.mark.parametrize("kind", list(SlotKind), ids=str)
def test_bytes_that_change_before_they_are_parsed_for_the_first_time_are_refused(
    tmp_path: Path, archive: Path, target: Path, kind: SlotKind
) -> None:
    """No digest was ordered: still, what is parsed is what was there when it was opened."""
    one, two = stored(b"good"), stored(b"evil")
    if kind is SlotKind.FILE:
        one, two = SCRIPT, SCRIPT.replace(b"1", b"2")
    path = tmp_path / "candidate"
    path.write_bytes(one)
    with open_candidate(path, agent=AGENT, kind=kind) as candidate:
        overwritten(path, two)
        with pytest.raises(Refused, match="it has other bytes than before") as caught:
            candidate.unpack(target, Disk())
    assert caught.value.reason is Reason.BAD_CANDIDATE
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize("during", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda top: overwritten(top / "lib/data.json", b"[]\n"),
        lambda top: overwritten(top / "lib/data.json", b"longer than before\n"),
        lambda top: overwritten(top / "lib/data.json", b""),
        lambda top: (top / "lib/data.json").unlink(),
        lambda top: (top / "lib/new").touch(),
        lambda top: (top / "lib/zzz").touch(),
        lambda top: (top / "lib-two").rmdir(),
        lambda top: shutil.rmtree(top / "lib"),
    ],
)
def test_a_directory_changed_before_or_during_staging_fails_and_leaves_nothing(
    unpacked: Path, target: Path, change: Callable[[Path], None], during: bool
) -> None:
    assert "changed" in restage_fails(unpacked, target, lambda: change(unpacked), during=during)


@pytest.mark.parametrize("size", [270_000, 400_000])
def test_a_file_whose_length_changes_while_it_is_copied_fails_and_leaves_nothing(
    unpacked: Path, target: Path, size: int
) -> None:
    native = unpacked / "lib/native.so"

    def on_bytes(done: int) -> None:
        if done > 100_000:
            os.truncate(native, size)

    with (
        open_candidate(unpacked, agent=AGENT, kind=BUNDLE) as candidate,
        pytest.raises(Failed, match=r"'lib/native.so' changed its size while being read"),
    ):
        candidate.unpack(target, Disk(), on_bytes=on_bytes)
    assert os.listdir(target.parent) == []


def test_a_link_that_takes_the_place_of_a_directory_during_staging_is_not_followed(
    unpacked: Path, target: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"

    def swap() -> None:
        (unpacked / "lib").rename(elsewhere)
        (unpacked / "lib").symlink_to(elsewhere)

    text = restage_fails(unpacked, target, swap, during=True)
    assert "'lib' is a symbolic link" in text


def test_a_target_that_comes_into_being_inside_the_source_is_not_copied_into_itself(
    unpacked: Path,
) -> None:
    target = unpacked / "blue"
    before = everything(unpacked)
    with (
        open_candidate(unpacked, agent=AGENT, kind=BUNDLE) as candidate,
        pytest.raises(Failed, match="'blue' was not there"),
    ):
        candidate.stage(target, Disk())
    assert everything(unpacked) == before
