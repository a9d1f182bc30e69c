"""The way into a running container: past its engine where that can be, through it otherwise.

The engine takes 84 ms of processor time for a command, entering the container's namespaces 5 ms,
and the lab's tests run a thousand commands. What runs has the container's capabilities and view,
and ends with it; only its control group is that of the tests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.engine import Engine

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "container": "docker",
}
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


@dataclass(frozen=True, slots=True)
class Entrance:
    """How to start a command in a container: words to put before it, and the environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str] | None = None


def entrance(engine: Engine, container: str) -> Entrance:
    """Find the way into a container, which is good until that stops."""
    format_of_pid = "--format={{.State.Pid}}"
    pid = engine.docker("inspect", format_of_pid, container).stdout.strip()
    process = Path("/proc", pid)
    try:
        # An engine may run in a machine of its own, where its numbers mean other processes.
        here = container in (process / "cgroup").read_text()
        status = (process / "status").read_text()
    except OSError:
        here, status = False, ""
    bound = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if not here or bound is None:
        return Entrance(("docker", "--host", engine.host, "exec", "--interactive", container))
    last = int(_LAST_CAPABILITY.read_text())
    kept = [f"+cap_{number}" for number in range(last + 1) if int(bound[1], 16) >> number & 1]
    bounding = f"--bounding-set={','.join(('-all', *kept))}"
    return Entrance(
        ("nsenter", f"--target={pid}", *_NAMESPACES, "setpriv", bounding, "--"), ENVIRONMENT
    )
