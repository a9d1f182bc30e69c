"""Running a command inside a machine, bounded in time and in output.

It goes through `systemd-run --machine`, so the command is a unit of the machine's own service
manager and its exit status comes back (unlike with `machinectl shell`). Facts it rests on,
since systemd 248: `--setenv=NAME` takes the value from the environment, which keeps values
out of the argument list; killing systemd-run leaves the unit running, so it is stopped too;
a dollar in an argument is expanded by the service manager unless it is doubled.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

import msgspec

from nspawn.errors import (
    CommandTimeout,
    MachineUnreachable,
    NoSuchMachine,
    OutputLimit,
)
from nspawn.machine import checked_name

SYSTEMD_RUN: Final = Path("/usr/bin/systemd-run")
SYSTEMCTL: Final = Path("/usr/bin/systemctl")
MACHINES: Final = Path("/run/systemd/machines")
"""Where machined keeps a file for each running machine; libsystemd reads it there too."""

OUTPUT_LIMIT: Final = 64 * 1024

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C"}
_STOP_TIMEOUT = 10.0
_CHUNK = 16 * 1024
_NOT_STARTED = re.compile(
    rb"^Failed to (?:connect to .*bus|create bus connection|start transient service unit).*",
    re.MULTILINE,
)


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended by itself. `duration` is in seconds, start-up included."""

    returncode: int
    stdout: bytes
    stderr: bytes
    duration: float


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Where the programs and machined's state are; the defaults hold for Debian and its kin."""

    systemd_run: Path = SYSTEMD_RUN
    systemctl: Path = SYSTEMCTL
    machines: Path = MACHINES


TOOLS: Final = Tools()
NO_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType({})


def run(
    machine: str,
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] = NO_ENVIRONMENT,
    output_limit: int = OUTPUT_LIMIT,
    tools: Tools = TOOLS,
) -> Completed:
    """Run `argv` (an absolute program and its arguments, no shell) as root in `machine`.

    Every argument arrives as it is. The environment is PATH, LANG=C and `env`, which others in
    the machine can read: no place for secrets. `timeout` is in seconds, `output_limit` in bytes
    for each stream. The return code is 203 when there is no such program and 255 after a signal.

    Raises CommandTimeout and OutputLimit, the command being killed and its unit stopped in both
    cases, NoSuchMachine, MachineUnreachable when the machine's service manager took no command.
    """
    _require(machine, tools)
    unit = f"nspawn-run-{os.urandom(8).hex()}.service"
    environment = {**_ENVIRONMENT, **env}
    started = time.monotonic()
    command = _command(machine, unit, argv, timeout=timeout, names=environment, tools=tools)
    with _spawned(command, environment) as process:
        try:
            streams = _collected(
                process, started + timeout, limit=output_limit, what=f"{argv[0]} in {machine!r}"
            )
        except BaseException:
            _kill(process)
            _stop(machine, unit, tools)
            raise
    completed = Completed(
        returncode=process.returncode,
        stdout=bytes(streams[0]),
        stderr=bytes(streams[1]),
        duration=time.monotonic() - started,
    )
    if completed.returncode != 0:
        _require(machine, tools)
        _require_started(machine, completed)
    return completed


def _command(
    machine: str,
    unit: str,
    argv: Sequence[str],
    *,
    timeout: float,
    names: Iterable[str],
    tools: Tools,
) -> list[str]:
    return [
        str(tools.systemd_run),
        f"--machine={machine}",
        f"--unit={unit}",
        *("--pipe", "--wait", "--quiet", "--collect"),
        # These hold should this process be killed itself, and make a stop quick.
        f"--property=RuntimeMaxSec={ceil(timeout) + 1}",
        "--property=KillSignal=SIGKILL",
        *(f"--setenv={name}" for name in names),
        "--",
        argv[0],
        *(argument.replace("$", "$$") for argument in argv[1:]),
    ]


@contextmanager
def _spawned(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child in its own process group, reaped when the block ends."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            cwd="/",
            process_group=0,
        )
    except OSError as e:
        remedy = "install systemd-container's programs"
        raise MachineUnreachable(f"cannot run {command[0]}: {e.strerror}", remedy=remedy) from e
    with child as process:
        yield process


def _collected(
    process: subprocess.Popen[bytes], deadline: float, *, limit: int, what: str
) -> tuple[bytearray, bytearray]:
    """Stdout and stderr until the child ends; whoever else keeps them open is not awaited."""
    captured = {_unblocked(process.stdout): bytearray(), _unblocked(process.stderr): bytearray()}
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (ended, *captured):
                selector.register(fd, selectors.EVENT_READ)
            ready: set[int] = set()
            while ended not in ready:
                rest = deadline - time.monotonic()
                ready = {key.fd for key, _ in selector.select(max(0.0, rest))}
                if not ready:
                    raise CommandTimeout(
                        f"{what} missed its deadline and was killed", remedy="see if it hangs there"
                    )
                for fd in ready & captured.keys():
                    if not _took(fd, captured[fd], limit, what):
                        selector.unregister(fd)
    finally:
        os.close(ended)
    for fd, content in captured.items():
        while _took(fd, content, limit, what):
            pass
    stdout, stderr = captured.values()
    return stdout, stderr


def _unblocked(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise ValueError("the stream was not captured")
    os.set_blocking(stream.fileno(), False)
    return stream.fileno()


def _took(fd: int, content: bytearray, limit: int, what: str) -> bool:
    """Read once; False when nothing is there (any more)."""
    try:
        chunk = os.read(fd, _CHUNK)
    except BlockingIOError:
        return False
    content += chunk
    if len(content) > limit:
        raise OutputLimit(
            f"{what} wrote more than {limit} bytes and was killed", remedy="see what it writes"
        )
    return bool(chunk)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _stop(machine: str, unit: str, tools: Tools) -> None:
    """Stop the unit in the machine as well as may be; RuntimeMaxSec ends it otherwise."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [str(tools.systemctl), f"--machine={machine}", "stop", unit],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            timeout=_STOP_TIMEOUT,
            check=False,
        )


def _require(machine: str, tools: Tools) -> None:
    if not (tools.machines / checked_name(machine)).exists():
        raise NoSuchMachine(machine)


def _require_started(machine: str, completed: Completed) -> None:
    """Tell systemd-run's own failure, which also exits with 1, from the command's."""
    if completed.returncode == 1 and not completed.stdout:
        told = _NOT_STARTED.search(completed.stderr)
        if told:
            raise MachineUnreachable(
                f"machine {machine!r} took no command: {told[0].decode(errors='replace')}",
                remedy="wait until it has booted, and check dbus in it",
            )
