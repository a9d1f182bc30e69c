"""A node in the lab as tests of hostsync see it: install, order, look, compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from e2e.lab import COMMAND_SECONDS, MACHINE_ROOT, Lab
from e2e.records import Beat
from e2e.releases import Releases

SLOT_ROOT = "/usr/local/lib/hostsync"
ORDERS = "/root/orders"
LOCK = "/run/hostsync/lock"
BUSY = 4
START_SECONDS = 90
"""As installed: no release that starts at all is called late, on however busy a machine."""
HANG_SECONDS = 5
"""For tests about releases that hang, which wait it out."""
WINDOW_SECONDS = 1
LEASE_SECONDS = 40.0
"""How long a Lease holds; a node that has not renewed it by then is taken for lost."""
CONFIG_FILE = "/etc/hostsync/config.toml"
CONFIG = f"""\
[agents.hostsync]
start_seconds = {START_SECONDS}
window_seconds = {WINDOW_SECONDS}

[machines]
check_seconds = 2
"""

_SNAPSHOT = f"""
cd /
where="usr/local etc/systemd etc/hostsync {MACHINE_ROOT[1:]}/usr/local"
find $where -printf '%p %y %m %U:%G %l\\n' | sort
find $where -type f -print0 | sort -z | xargs -0 cksum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """One command of hostsync that ended: exit status, JSON lines, what went to stderr."""

    code: int
    lines: tuple[dict[str, Any], ...]
    err: str

    def last(self, key: str) -> dict[str, Any]:
        """The last line that has `key`."""
        return next(line[key] for line in reversed(self.lines) if key in line)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events, in order."""
        return [line["event"] for line in self.lines if "event" in line]


class Node:
    """hostsync on the lab's host."""

    def __init__(self, lab: Lab, releases: Releases) -> None:
        self.lab = lab
        self.releases = releases

    def install(self, config: str = CONFIG) -> None:
        """Make the lab new and install 1.0.0 from its own bundle, as an operator would."""
        self.lab.reset()
        self.lab.write(CONFIG_FILE, config)
        path = self.give(self.releases.base())
        self.lab.host_script(
            f"cd /root && tar -xzf {path} && hostsync-linux-*/bin/hostsync install"
        )
        self.lab.host("rm", "-rf", "/root/hostsync-linux-amd64")
        self.lab.await_beat(lambda beat: beat.ok and beat.release == "1.0.0")

    def give(self, release: Path) -> str:
        """Put a release on the host and return where."""
        remote = f"{ORDERS}/{release.name}"
        if self.lab.host("test", "-e", remote, check=False).code:
            self.lab.copy_in(release, remote)
        return remote

    def hostsync(
        self, *words: str, program: str = "hostsync", timeout: float = COMMAND_SECONDS
    ) -> Ordered:
        """Run a command of hostsync with JSON output.

        A judge has things to put away after its verdict. A command that finds it at that is run
        again when it is done.
        """
        while True:
            argv = (program, "--output", "json", *words)
            done = self.lab.host(*argv, check=False, timeout=timeout)
            lines = tuple(json.loads(line) for line in done.out.splitlines())
            if done.code != BUSY or "busy: judge " not in done.out:
                return Ordered(code=done.code, lines=lines, err=done.err)
            self.lab.host("flock", LOCK, "true")

    def upgrade(self, release: Path, *options: str) -> Ordered:
        """Order a release and wait for its verdict."""
        return self.hostsync("upgrade", *options, self.give(release))

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Orders made in here find a release late after HANG_SECONDS."""
        usual = self.lab.read(CONFIG_FILE)
        hurried = usual.replace(
            f"start_seconds = {START_SECONDS}", f"start_seconds = {HANG_SECONDS}"
        )
        self.lab.write(CONFIG_FILE, hurried)
        try:
            yield
        finally:
            self.lab.write(CONFIG_FILE, usual)

    def await_end(self, order: str, agent: str = "hostsync") -> None:
        """Wait until the judge is done with an order."""
        state = f"/var/lib/hostsync/{agent}"
        self.lab.host_script(
            f"until grep -q {order} {state}/history.jsonl && [ ! -e {state}/record.json ];"
            f"do sleep 0.05; done; flock {LOCK} true"
        )

    def status(self) -> dict[str, Any]:
        """What `hostsync status` says."""
        return self.hostsync("status").last("status")

    def snapshot(self) -> str:
        """Every path that hostsync may touch, with kind, mode, owner, target, size and CRC."""
        return self.lab.host_script(_SNAPSHOT).out

    def link(self, name: str) -> str:
        """Where a link of the slot root leads."""
        return self.lab.host("readlink", f"{SLOT_ROOT}/{name}").out.strip()

    def unit(self, name: str, unit: str = "hostsync.service") -> str:
        """One property of a unit of the host."""
        return self.lab.host("systemctl", "show", "--value", "-p", name, unit).out.strip()

    def moment(self) -> int:
        """The host's clock, in epoch milliseconds: where beats are counted from."""
        return int(self.lab.host("date", "+%s%3N").out)

    def beats_since(self, moment: int) -> list[Beat]:
        """The beats that began after that; the last is waited for, so that none is half there."""
        self.lab.await_beat(lambda beat: True)
        return [beat for beat in self.lab.beats() if beat.start >= moment]


def missed(beats: Sequence[Beat]) -> list[str]:
    """What went wrong among beats: failures, and a silence after which the node would be lost.

    A busy machine makes a beat late and leaves a hole in the numbers, whatever hostsync does. How
    long the gaps are where nothing else runs is what the demonstration measures and judges.
    """
    wrong = [f"beat {beat.n} failed: {beat.message}" for beat in beats if not beat.ok]
    gap = longest_gap(beats)
    return wrong + ([f"no renewal for {gap:.1f} s"] if gap >= LEASE_SECONDS else [])


def longest_gap(beats: Sequence[Beat]) -> float:
    """Seconds between two stored renewals of the Lease, at most."""
    good = [beat.end for beat in beats if beat.ok]
    return max((b - a for a, b in pairwise(good)), default=0) / 1000
