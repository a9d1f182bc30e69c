"""The one door to processes and filesystems that are only looked at."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from hostsync.errors import DiskError, Failed
from hostsync.ports import Completed, Space

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C",
}
OUTPUT_LIMIT = 64 << 10
JOURNALCTL = "/usr/bin/journalctl"
JOURNAL_SECONDS = 5.0
JOURNAL_LINE = 400


class SystemProbe:
    """`ports.Probe` on this host."""

    def run(self, argv: tuple[str, ...], timeout: float) -> Completed:
        """See `ports.Probe.run`."""
        try:
            process = subprocess.Popen(
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
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                return self._killed(process)
            finally:
                _kill_group(process.pid)
        return Completed(status=process.returncode, stdout=_text(stdout), stderr=_text(stderr))

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

    def space(self, path: Path) -> Space:
        """See `ports.Probe.space`."""
        existing = next(p for p in (path, *path.parents) if p.exists())
        try:
            status = os.statvfs(existing)
        except OSError as error:
            raise DiskError(f"cannot examine {existing}: {error.strerror}") from error
        return Space(
            free=status.f_bavail * status.f_frsize,
            read_only=bool(status.f_flag & os.ST_RDONLY),
            noexec=bool(status.f_flag & os.ST_NOEXEC),
        )

    def journal(self, unit: str, invocation: str, lines: int) -> tuple[str, ...]:
        """See `ports.Probe.journal`."""
        match = f"_SYSTEMD_INVOCATION_ID={invocation}" if invocation else f"_SYSTEMD_UNIT={unit}"
        argv = (JOURNALCTL, "--no-pager", "--quiet", "--output=cat", f"--lines={lines}", match)
        try:
            done = self.run(argv, JOURNAL_SECONDS)
        except Failed:
            return ()
        return tuple(line[:JOURNAL_LINE] for line in done.stdout.splitlines())

    def _killed(self, process: subprocess.Popen[bytes]) -> Completed:
        _kill_group(process.pid)
        stdout, stderr = process.communicate()
        return Completed(status=None, stdout=_text(stdout), stderr=_text(stderr))


def _kill_group(group: int) -> None:
    """End what the command left behind; a group that is gone is fine."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data[:OUTPUT_LIMIT].decode(errors="replace")
