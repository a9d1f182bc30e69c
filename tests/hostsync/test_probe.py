"""Running somebody else's program: bounded in time, memory and reach, with a clean environment."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hostsync.errors import Failed
from hostsync.probe import CLEAN_ENVIRONMENT, OUTPUT_LIMIT, SystemProbe
from tests.processes import LONG, ended

PROBE = SystemProbe()
BRIEF = 2.0
"""A time limit to run into. What the program does before it hangs takes milliseconds."""


class InterruptedOrder(BaseException):
    """What a handler raises."""


def shell(script: str, timeout: float = LONG, *arguments: str) -> tuple[int | None, str, str]:
    done = PROBE.run(("/bin/sh", "-c", script, "sh", *arguments), timeout)
    return done.status, done.stdout, done.stderr


def kill_running(pid: int) -> None:
    """Kill a process that was not waited for: it is there still, asleep or about to be."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    os.kill(pid, signal.SIGKILL)
    assert state in "RSD"


def test_status_and_both_outputs_are_told_apart() -> None:
    assert shell("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")


def test_death_by_a_signal_is_no_success_and_no_missed_deadline() -> None:
    assert shell("kill -TERM $$")[0] == -signal.SIGTERM


def test_standard_input_is_empty() -> None:
    assert shell("cat; echo end") == (0, "end\n", "")


def test_only_the_clean_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "canary-of-the-caller")
    _, out, _ = shell("exec env")
    assert dict(line.split("=", 1) for line in out.splitlines() if line[:4] != "PWD=") == (
        CLEAN_ENVIRONMENT
    )


def test_it_runs_in_the_root_directory_and_in_a_group_of_its_own() -> None:
    _, out, _ = shell("pwd; ps -o pgid= -p $$; echo $$")
    directory, group, pid = out.split()
    assert (directory, group) == ("/", pid)
    assert int(group) != os.getpgrp()


def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)
        _, out, _ = shell("ls -l /proc/self/fd")
    assert "secret" not in out


def test_at_the_deadline_the_whole_group_is_killed(tmp_path: Path) -> None:
    status, out, _ = shell("sleep 600 & echo $! $$; sleep 600", BRIEF)
    assert status is None
    assert [ended(int(pid)) for pid in out.split()] == [True, True]


def test_what_a_program_leaves_in_its_group_is_ended_with_it() -> None:
    status, out, _ = shell("sleep 600 >/dev/null 2>&1 & echo $!")
    assert status == 0
    assert ended(int(out))


@pytest.fixture
def fled(tmp_path: Path) -> str:
    """A script that starts a process which leaves its group, keeps the pipes, and says its id."""
    os.mkfifo(tmp_path / "fifo")
    flee = f"setsid sh -c 'echo $$; echo >{tmp_path}/fifo; exec sleep 600' &"
    return f"{flee} read there <{tmp_path}/fifo;"


def test_a_process_that_left_the_group_and_keeps_the_pipes_delays_nothing(fled: str) -> None:
    status, out, _ = shell(f"{fled} exit 4")
    kill_running(int(out))
    assert status == 4


def test_a_process_that_left_the_group_cannot_hang_the_deadline(fled: str) -> None:
    status, out, _ = shell(f"{fled} sleep 600", BRIEF)
    kill_running(int(out))
    assert status is None


def test_a_program_that_ignores_every_signal_it_may_is_killed() -> None:
    assert shell("trap '' TERM INT HUP; while :; do sleep 600; done", BRIEF)[0] is None


def test_a_program_has_no_signal_blocked_or_ignored_that_was_not() -> None:
    _, out, _ = shell("grep -E '^Sig(Blk|Ign)' /proc/self/status")
    blocked, ignored = (int(line.split()[1], 16) for line in out.splitlines())
    assert blocked == 0
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGTERM - 1)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_an_interruption_ends_the_program_and_lets_signals_in_again(tmp_path: Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise InterruptedOrder

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with pytest.raises(InterruptedOrder):
            shell(f"echo $$ >{tmp_path}/pid; kill -TERM $PPID; sleep 600")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended(int((tmp_path / "pid").read_text()))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_end_while_the_program_is_started_ends_it(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, argv: tuple[str, ...], **options: object) -> None:
            super().__init__(argv, **options)  # type: ignore[call-overload]
            started.append(self.pid)
            os.kill(os.getpid(), number)

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedOrder

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(InterruptedOrder):
            shell("sleep 600")
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)
    (pid,) = started
    assert ended(pid)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_endless_output_is_cut_and_costs_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "yes x | head -c 64M & yes y | head -c 64M >&2; wait"
    done = PROBE.run(("/bin/sh", "-c", script), LONG)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert done.status == 0
    assert (len(done.stdout), len(done.stderr)) == (OUTPUT_LIMIT, OUTPUT_LIMIT)
    assert grown < 16 << 10, "KiB"


def test_endless_output_ends_at_the_deadline() -> None:
    assert shell("exec yes", 0.1)[0] is None


def test_what_exceeds_the_limit_is_read_so_that_the_program_can_end() -> None:
    status, out, _ = shell("head -c 300000 /dev/zero | tr '\\0' x; exit 5")
    assert status == 5
    assert out == "x" * OUTPUT_LIMIT


def test_output_that_would_act_on_a_terminal_is_spelt_out() -> None:
    status, out, err = shell(r"printf '\033]0;owned\007\n'; printf '\302\233\377' >&2")
    assert status == 0
    assert out == "\\x1b]0;owned\\x07\n"
    assert err == "\\x9b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF", b"#!/nonexistent\n"])
def test_what_cannot_be_started_is_named(tmp_path: Path, content: bytes | None) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_bytes(content)
        program.chmod(0o755)
    with pytest.raises(Failed, match=f"cannot run {program}: "):
        PROBE.run((str(program), "version"), LONG)


def test_a_running_executable_is_known_by_inode_and_path() -> None:
    status = os.stat("/proc/self/exe")
    assert PROBE.executable(os.getpid()) == (status.st_dev, status.st_ino)
    assert PROBE.executable_path(os.getpid()) == Path(os.readlink("/proc/self/exe"))


def test_a_replaced_executable_is_not_the_file_that_took_its_place(tmp_path: Path) -> None:
    program = tmp_path / "sleep"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    old = program.stat()
    pid = os.posix_spawn(program, ["sleep", "600"], {})
    try:
        program.rename(tmp_path / "old")
        program.write_bytes(b"another")
        deadline = time.monotonic() + LONG
        while PROBE.executable(pid) != (old.st_dev, old.st_ino):
            assert time.monotonic() < deadline
        assert PROBE.executable_path(pid) == tmp_path / "old"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert PROBE.executable(pid) is None
    assert PROBE.executable_path(pid) is None


def test_space_is_that_of_the_nearest_directory_that_is_there(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    space = PROBE.space(tmp_path / "not/yet/there")
    assert not space.read_only
    assert abs(space.free - status.f_bavail * status.f_frsize) < 64 << 20
