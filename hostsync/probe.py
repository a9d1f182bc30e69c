"""The one door to processes and filesystems that are only looked at.

Facts it rests on: a process that left its group (setsid) is out of reach of a kill of the group
and may keep the pipes open for ever, so nothing here waits for their end. A process number is
not given out again before its process is reaped, so the group is killed before that. A command
inherits which signals are blocked and which are ignored, but no handler.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

from hostsync.errors import DiskError, Failed
from hostsync.ports import Completed, Space
from hostsync.redaction import plain, redact

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C",
}
OUTPUT_LIMIT = 64 << 10
JOURNALCTL = "/usr/bin/journalctl"
JOURNAL_SECONDS = 5.0
JOURNAL_LINE = 400
JOURNAL_CONSIDERED = 4 * JOURNAL_LINE
JOURNAL_LIMIT = 1 << 20
"""journald cuts a line at 48 KiB; entries are asked for newest first, so the last
words come; without --all journalctl leaves out what is longer than 4 KiB."""
JOURNAL_ENTRIES = 400
_INVOCATION = "_SYSTEMD_INVOCATION_ID"
_PIECE = 64 << 10
_PIECES_AFTER_THE_END = 16
"""No pipe holds more than 1 MiB; whoever goes on writing is not listened to."""
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SystemProbe:
    """`ports.Probe` on this host."""

    def __init__(self, journalctl: str = JOURNALCTL) -> None:
        self._journalctl = journalctl

    def run(self, argv: tuple[str, ...], timeout: float) -> Completed:
        """See `ports.Probe.run`."""
        done = _run(argv, timeout, OUTPUT_LIMIT)
        return Completed(
            status=done.status,
            stdout=plain(redact(done.stdout))[:OUTPUT_LIMIT],
            stderr=plain(redact(done.stderr))[:OUTPUT_LIMIT],
        )

    def executable(self, pid: int) -> tuple[int, int] | None:
        """See `ports.Probe.executable`."""
        try:
            status = os.stat(f"/proc/{pid}/exe")
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def executable_path(self, pid: int) -> Path | None:
        """See `ports.Probe.executable_path`."""
        try:
            return Path(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            return None

    def script(self, pid: int) -> Path | None:
        """See `ports.Probe.script`."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        return Path(os.fsdecode(words[1])) if len(words) > 1 and words[1] else None

    def space(self, path: Path) -> Space:
        """See `ports.Probe.space`."""
        existing = next(p for p in (path, *path.parents) if p.exists())
        try:
            status = os.statvfs(existing)
        except OSError as error:
            raise DiskError(f"cannot examine {existing}: {error.strerror}") from error
        return Space(
            device=existing.stat().st_dev,
            free=status.f_bavail * status.f_frsize,
            read_only=bool(status.f_flag & os.ST_RDONLY),
            noexec=bool(status.f_flag & os.ST_NOEXEC),
        )

    def journal(self, unit: str, lines: int, *, after: str, but: str) -> tuple[str, ...]:
        """See `ports.Probe.journal`."""
        argv = (
            self._journalctl,
            "--no-pager",
            "--quiet",
            "--boot",
            "--all",
            "--reverse",
            "--output=json",
            f"--output-fields=MESSAGE,{_INVOCATION}",
            f"--lines={JOURNAL_ENTRIES}",
            f"_SYSTEMD_UNIT={unit}",
        )
        try:
            done = _run(argv, JOURNAL_SECONDS, JOURNAL_LIMIT)
        except Failed:
            return ()
        found: list[str] = []
        for invocation, message in _entries(done.stdout):
            if len(found) >= lines or (after and invocation == after):
                break
            if invocation != but or not but:
                said = [plain(redact(line[:JOURNAL_CONSIDERED])) for line in message.split("\n")]
                found += [line[:JOURNAL_LINE] for line in reversed(said) if line]
        return tuple(reversed(found[:lines]))


def _entries(output: str) -> Iterator[tuple[str, str]]:
    """Invocation and message of each whole entry; journald gives bytes as a list of numbers."""
    for line in output.split("\n"):
        with suppress(ValueError, TypeError, AttributeError):
            row = json.loads(line)
            message = row.get("MESSAGE") or ""
            if isinstance(message, list):
                message = bytes(message).decode(errors="replace")
            yield str(row.get(_INVOCATION) or ""), str(message)


class _Output:
    """The first `limit` bytes of a pipe; the rest is read and forgotten."""

    def __init__(self, pipe: IO[bytes] | None, limit: int) -> None:
        if pipe is None:
            raise ValueError("the command has no pipe")
        self.fd = pipe.fileno()
        self._limit = limit
        self._kept = bytearray()
        os.set_blocking(self.fd, False)

    def take(self) -> bool:
        """Read once; False at the end of the pipe or when nothing is there."""
        try:
            piece = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return False
        self._kept += piece[: self._limit - len(self._kept)]
        return bool(piece)

    def text(self) -> str:
        """What is still in the pipe included; never waits."""
        for _ in range(_PIECES_AFTER_THE_END):
            if not self.take():
                break
        return self._kept.decode(errors="replace")


def _run(argv: tuple[str, ...], timeout: float, limit: int) -> Completed:
    """See `ports.Probe.run`; keeps the first `limit` bytes of each output, as they came."""
    deadline = time.monotonic() + timeout
    # A signal's handler raises, and between the start and the `try` nobody would end the command.
    with _HeldSignals() as held, _start(argv) as process:
        try:
            held.release()
            stdout, stderr = _Output(process.stdout, limit), _Output(process.stderr, limit)
            ended = _ended_in_time(process.pid, (stdout, stderr), deadline)
        finally:
            _kill(process)
        said, complained = stdout.text(), stderr.text()
    status = process.returncode if ended else None
    return Completed(status=status, stdout=said, stderr=complained)


class _HeldSignals:
    """Signals to end whose handlers wait until `release`, or the end of the block.

    They are not blocked meanwhile: the command would inherit that, and to have it undone in the
    child, this whole process would have to be copied for each start.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._came: list[int] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Handlers run in no other.
            try:
                self._take_over()
            except BaseException:
                self.release()
                raise
        return self

    def _take_over(self) -> None:
        with _blocked():
            for number in _ENDING_SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._hold)

    def _hold(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)

    def release(self) -> None:
        """Let the handlers answer what came, and what comes from now on.

        Once more, it goes on where a handler interrupted it: a signal that another thread took
        is answered in this one although it is blocked here.
        """
        with _blocked():
            for number in tuple(self._handlers):
                signal.signal(number, self._handlers[number])
                del self._handlers[number]
            while self._came:
                signal.raise_signal(self._came.pop())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


@contextmanager
def _blocked() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=CLEAN_ENVIRONMENT,
            cwd="/",
            process_group=0,
        )
    except OSError as error:
        raise Failed(f"cannot run {argv[0]}: {error.strerror}") from error


def _ended_in_time(pid: int, outputs: tuple[_Output, ...], deadline: float) -> bool:
    """Read until the process ends (it stays unreaped) or the deadline passes."""
    pidfd = os.pidfd_open(pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            for output in outputs:
                selector.register(output.fd, selectors.EVENT_READ, output)
            while (rest := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(rest):
                    if key.fd == pidfd:
                        return True
                    if not key.data.take():
                        selector.unregister(key.fd)
            return False
    finally:
        os.close(pidfd)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it left in its group; a process may have left the group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
