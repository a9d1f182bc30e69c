"""Stand-ins for machines: a real process with its own root and mounts, and its `Machine`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nspawn.machine import Machine, start_time

LEADER = Path(__file__).with_name("leader.py")


@dataclass(frozen=True, kw_only=True)
class Bind:
    source: Path
    destination: str
    read_only: bool = True


@contextmanager
def running(root: Path, *binds: Bind, prefix: tuple[str, ...] = ()) -> Iterator[Machine]:
    """A machine `kube1` with this root; `prefix` is a command that starts its leader."""
    arguments = [
        part
        for bind in binds
        for part in (str(bind.source), bind.destination, "ro" if bind.read_only else "rw")
    ]
    command = [*prefix, sys.executable, "-I", str(LEADER), str(root), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"ready\n"
        try:
            yield machine(process.pid, root)
        finally:
            process.stdin.close()
            process.wait()


def machine(pid: int, root: Path | None) -> Machine:
    return Machine(
        name="kube1",
        leader=pid,
        leader_start=start_time(Path(f"/proc/{pid}/stat").read_bytes()),
        root=root,
        unit="systemd-nspawn@kube1.service",
        state="running",
        class_="container",
        user_namespace=False,
    )
