"""Waiting for a line that a command will print."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Found = TypeVar("Found")


def first_line_that(
    command: Sequence[str],
    pick: Callable[[str], Found | None],
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Found:
    """Return the first thing that `pick` finds in a line of the command's output.

    The command, which has this process's environment unless another is given, is ended then.
    Raises TimeoutError after `timeout` seconds, or when the command ends itself.
    """
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as source:
        assert source.stdout is not None
        try:
            return _search(source.stdout.fileno(), pick, deadline)
        finally:
            source.kill()


def _search(descriptor: int, pick: Callable[[str], Found | None], deadline: float) -> Found:
    pending = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError("no such line in time")
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            raise TimeoutError("the command ended without such a line")
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            found = pick(line.decode(errors="replace") + "\n")
            if found is not None:
                return found
