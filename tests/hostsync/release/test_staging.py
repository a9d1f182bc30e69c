from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostsync.errors import DiskError, Failed, Reason, Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind, tree_digest
from hostsync.ports import Draft
from hostsync.release import open_candidate, scan
from tests.hostsync.release.conftest import everything, inspected
from tests.hostsync.release.tarball import (
    AGENT,
    RELEASE,
    SCRIPT,
    TOP,
    Raw,
    packed,
)

BUNDLE, FILE = SlotKind.BUNDLE, SlotKind.FILE


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    old = os.umask(request.param)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
def test_what_is_staged_is_what_was_inspected_whatever_the_umask(
    source: Path, target: Path
) -> None:
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        candidate.stage(target, Disk())
        assert tree_digest(scan(target)) == candidate.inspect().content_digest
    found = {entry.path: (entry.mode, entry.is_directory) for entry in scan(target)}
    assert found == {path: (mode, data is None) for path, (mode, data) in RELEASE.items()}
    assert target.stat().st_mode & 0o7777 == 0o755
    for path, (_, data) in RELEASE.items():
        assert data is None or (target / path).read_bytes() == data


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("is_archive", [True, False])
def test_a_single_file_is_staged_executable_whatever_its_mode(
    tmp_path: Path, target: Path, is_archive: bool
) -> None:
    path = tmp_path / "agent"
    path.write_bytes(packed(Raw(name=TOP.encode(), data=SCRIPT)) if is_archive else SCRIPT)
    path.chmod(0o600)
    with open_candidate(path, agent=AGENT, kind=FILE) as candidate:
        candidate.stage(target, Disk())
    assert target.read_bytes() == SCRIPT
    assert target.stat().st_mode & 0o7777 == 0o755
    assert os.listdir(target.parent) == ["blue"]


def test_odd_modes_of_a_source_become_the_two_modes_of_a_release(
    unpacked: Path, archive: Path, target: Path
) -> None:
    for path, mode in {
        "lib": 0o700,
        "lib/data.json": 0o660,
        f"bin/{AGENT}": 0o700,
    }.items():
        (unpacked / path).chmod(mode)
    assert inspected(unpacked).content_digest == inspected(archive).content_digest


def test_progress_counts_up_to_the_size_of_the_release(source: Path, target: Path) -> None:
    seen: list[int] = []
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        size = candidate.unpack(target, Disk(), on_bytes=seen.append).size
    assert seen == sorted(seen)
    assert seen[-1] == size


def test_a_candidate_can_be_staged_more_than_once(source: Path, target: Path) -> None:
    other = target.with_name("green")
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        candidate.stage(target, Disk())
        candidate.stage(other, Disk())
    assert scan(target) == scan(other)


@pytest.mark.parametrize("put", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_at_the_target_is_left_alone(
    source: Path, target: Path, put: Callable[[Path], None]
) -> None:
    put(target)
    before = everything(target.parent)
    with (
        open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate,
        pytest.raises(Refused) as caught,
    ):
        candidate.stage(target, Disk())
    assert caught.value.reason is Reason.IN_THE_WAY
    assert everything(target.parent) == before


# Disks that misbehave


class FailingDisk(Disk):
    """A disk on which the verb number `at` fails, or loses a byte of what it writes."""

    def __init__(self, at: int, *, is_silent: bool = False) -> None:
        self.left = at
        self.is_silent = is_silent

    @contextmanager
    def draft(self, path: Path) -> Iterator[Draft]:
        with super().draft(path) as draft:
            yield FailingDraft(draft, self)

    def flush(self, path: Path) -> None:
        self.count(path)

    def count(self, path: Path | str) -> None:
        self.left -= 1
        if self.left < 0 and not self.is_silent:
            raise DiskError(f"cannot write {path}: No space left on device")


@dataclass(slots=True)
class FailingDraft:
    """A draft on that disk."""

    inner: Draft
    disk: FailingDisk

    def make_directory(self, path: str) -> None:
        self.disk.count(path)
        self.inner.make_directory(path)

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        self.disk.count(path)
        kept = b"".join(content)[: -1 if self.disk.left < 0 else None]
        self.inner.write(path, [kept], mode)


def test_a_disk_that_fails_at_any_step_leaves_nothing_at_the_target(
    source: Path, target: Path
) -> None:
    steps = len(RELEASE) + 2
    with open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate:
        for step in range(steps):
            with pytest.raises(DiskError, match="No space left"):
                candidate.stage(target, FailingDisk(step))
            assert os.listdir(target.parent) == []
        candidate.stage(target, FailingDisk(steps))
        assert tree_digest(scan(target)) == candidate.inspect().content_digest


def test_a_disk_that_loses_bytes_is_found_out(source: Path, target: Path) -> None:
    with (
        open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate,
        pytest.raises(Failed, match="installed content is"),
    ):
        candidate.stage(target, FailingDisk(0, is_silent=True))
    assert os.listdir(target.parent) == []


def test_an_interrupt_while_staging_leaves_nothing(source: Path, target: Path) -> None:
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with (
        open_candidate(source, agent=AGENT, kind=BUNDLE) as candidate,
        pytest.raises(KeyboardInterrupt),
    ):
        candidate.unpack(target, Disk(), on_bytes=interrupt)
    assert os.listdir(target.parent) == []
