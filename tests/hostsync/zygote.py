"""A process that has hostsync's modules loaded and forks commands from itself.

A forked command is a process like any other, with arguments, environment, output and exit status
of its own; what it is spared is to start Python and to import. That takes most of the time of a
command that refuses something, and there are many such tests. How a command really starts and
ends, by signals and in odd surroundings, is for tests/hostsync/test_cli_process.py.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hostsync import cli

_PACKAGES = ("hostsync.cli", "hostsync.activation", "hostsync.release")
_MODULES = ("hostsync.wiring", "hostsync.status", "hostsync.render")


class Zygote:
    """The running process; one command at a time."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], timeout: int
    ) -> tuple[int, str, str]:
        """Run `hostsync` with these arguments: exit status, output, standard error.

        A status below 0 is the signal that ended it. Raises TimeoutError when it took longer than
        `timeout` seconds; it is ended then.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            order = {
                "argv": argv,
                "environment": dict(environment),
                "timeout": timeout,
                "outputs": [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)],
            }
            self._requests.write(json.dumps(order) + "\n")
            self._requests.flush()
            status = int(self._answers.readline())
            if status == -signal.SIGALRM:
                raise TimeoutError(f"hostsync {argv} was still running after {timeout} s")
            written = []
            for file in (out, err):
                file.seek(0)
                written.append(file.read().decode())
        return status, written[0], written[1]


@contextmanager
def running_zygote(source: Path) -> Iterator[Zygote]:
    """A zygote that imports hostsync from the source tree `source`."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=source, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        yield Zygote(process.stdin, process.stdout)


def _serve() -> None:
    for name in (*_PACKAGES, *_MODULES):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."):
            importlib.import_module(module.name)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _become(order: Mapping[str, Any]) -> None:
    """Be the command from here on; never returns."""
    status = 1
    try:
        signal.alarm(order["timeout"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in enumerate(order["outputs"], start=1):
            os.dup2(os.open(path, os.O_WRONLY), number)
        sys.stdout, sys.stderr = (_stream(1, "strict"), _stream(2, "backslashreplace"))
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["hostsync", *order["argv"]]
        status = cli.main()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _stream(number: int, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", errors, write_through=True)


if __name__ == "__main__":
    _serve()
