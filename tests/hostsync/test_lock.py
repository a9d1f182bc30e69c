"""The host's lock: one holder, named to whoever comes second, gone with its process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hostsync import lock
from hostsync.errors import Busy, DiskError, ExitCode

HOLDER = """
import sys
from pathlib import Path
from hostsync import lock
with lock.held(Path(sys.argv[1]), sys.argv[2], wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(run_root: Path, purpose: str = "hostsync upgrade") -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its standard input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, run_root, purpose],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_taken_lock_is_busy_and_names_its_holder(tmp_path: Path) -> None:
    with holder(tmp_path, "hostsync upgrade to /x") as process:
        with pytest.raises(Busy) as busy, lock.held(tmp_path, "sync"):
            pytest.fail("two at a time")
        assert f"hostsync upgrade to /x (pid {process.pid})" in str(busy.value)
        assert str(tmp_path / "lock") in str(busy.value)
        assert busy.value.exit_code is ExitCode.BUSY


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        with lock.held(tmp_path, "sync"):
            assert "sync" in (tmp_path / "lock").read_text()


@pytest.mark.slow
def test_a_waiting_verb_gets_the_lock_when_its_holder_ends(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert process.stdin is not None
        process.stdin.close()
        with lock.held(tmp_path, "judge", wait=True):
            assert process.wait() == 0


def test_the_lock_is_free_again_after_use_and_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lock.held(tmp_path / "run", "sync"):
            raise ZeroDivisionError
    with lock.held(tmp_path / "run", "sync"):
        pass
    assert (tmp_path / "run/lock").read_bytes() == b""


def test_a_second_verb_does_not_wipe_out_who_the_first_is(tmp_path: Path) -> None:
    with lock.held(tmp_path, "first"):
        for _ in range(2):
            with pytest.raises(Busy, match="busy: first"), lock.held(tmp_path, "second"):
                pytest.fail("two at a time")


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with lock.held(tmp_path, "sync"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with lock.held(tmp_path, "again"):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_purpose_that_is_no_text_is_no_reason_to_fail(tmp_path: Path) -> None:
    purpose = "hostsync upgrade to /\udcff" + "x" * 9000
    with (
        lock.held(tmp_path, purpose),
        pytest.raises(Busy, match="udcff"),
        lock.held(tmp_path, "second"),
    ):
        pytest.fail("two at a time")
    assert (tmp_path / "lock").stat().st_size < 1024


def test_a_link_or_a_file_in_the_way_is_told_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "lock").symlink_to("precious")
    (tmp_path / "file").touch()
    for run_root in (tmp_path, tmp_path / "file"):
        with (
            pytest.raises(DiskError, match=f"cannot use the lock {run_root}/lock") as told,
            lock.held(run_root, "sync"),
        ):
            pytest.fail("no lock")
        assert told.value.remedy
    assert (tmp_path / "precious").read_text() == "as it was"


class Passing:
    """A clock on which only sleeping takes time, and something happens at one moment of it."""

    def __init__(self, at: float, happens: Callable[[], None]) -> None:
        self.now, self._at, self._happens = 0.0, at, happens

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def boot_id(self) -> str:
        return "boot"

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        if before < self._at <= self.now:
            self._happens()


@pytest.mark.parametrize(("ends", "words"), [(0.5, 0), (20.0, 1)])
def test_a_patient_verb_waits_for_housekeeping_and_says_so_once(
    tmp_path: Path, ends: float, words: int
) -> None:
    with ExitStack() as housekeeping:
        housekeeping.enter_context(lock.held(tmp_path, "sync of machine kube1", brief=True))
        clock, said = Passing(ends, housekeeping.close), list[str]()
        with lock.held(tmp_path, "upgrade", patience=lock.Patience(clock, said.append)):
            assert clock.now == pytest.approx(ends, abs=0.1)
    assert said == [f"waiting for the sync of machine kube1 (pid {os.getpid()}) to end"] * words


def test_patience_with_housekeeping_has_an_end(tmp_path: Path) -> None:
    clock = Passing(lock.PATIENCE_SECONDS * 2, pytest.fail)
    patience = lock.Patience(clock, lambda _: None)
    with (
        lock.held(tmp_path, "sync of machine kube1", brief=True),
        pytest.raises(Busy, match=r"^busy: sync of machine kube1 \(pid \d+\) holds"),
        lock.held(tmp_path, "upgrade", patience=patience),
    ):
        pytest.fail("two at a time")
    assert clock.now == pytest.approx(lock.PATIENCE_SECONDS, abs=0.1)


def test_an_order_is_not_waited_for(tmp_path: Path) -> None:
    clock = Passing(1.0, pytest.fail)
    patience = lock.Patience(clock, pytest.fail)
    with (
        lock.held(tmp_path, "hostsync upgrade"),
        pytest.raises(Busy, match="hostsync upgrade"),
        lock.held(tmp_path, "rollback", patience=patience),
    ):
        pytest.fail("two at a time")
    assert clock.now == 0
