"""Many daemons' operations in one process: each with its own machine, watches, desk and carrier.

    python -m benchmarks.crowd KUBECONFIG DAEMONS DIRECTORY [CHANCE]

What serves orders from the cluster in `hostsync daemon` is assembled as the daemon does it; the
hosts have nothing installed and share a configuration. CHANCE takes the place of every random
number, to see what chance is good for. Each line on the input is answered by a `Tally`.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from hostsync import config
from hostsync.activation.host import Event, Host
from hostsync.membership import Membership
from hostsync.operations import assembly
from hostsync.operations.cluster import Change, Seen
from hostsync.operations.kubernetes import KubernetesCluster
from hostsync.operations.operation import Operation
from hostsync.operations.watching import Means
from hostsync.wiring import wire

STACK = 512 << 10
"""Bytes of address space for each thread: there are four to a daemon."""

SWITCH_SECONDS = 0.1
"""How often each thread that waits for the interpreter asks for it; by default every 5 ms."""
STARTING = 10
"""How many daemons may be starting at once: a fleet's hosts do not boot in the same second."""


class Tally(msgspec.Struct, kw_only=True):
    """What came to all daemons since the process began."""

    events: int
    """Changes of operations, as watches brought them."""
    marks: int
    """Bookmarks."""
    cpu: float
    """Seconds of the processor."""
    resident: int
    """Bytes."""
    threads: int


class Counting(KubernetesCluster):
    """The cluster as the daemon has it, a count of what its watches bring, and a word at its first.

    `begun` is called once, when the first list has come.
    """

    def __init__(self, kubeconfig: Path, counter: list[Change], begun: Callable[[], None]) -> None:
        super().__init__(kubeconfig, None)
        self._counter = counter
        self._begun = [begun]

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        """See `Cluster.list`."""
        found = super().list(field_selector)
        with suppress(IndexError):
            self._begun.pop()()
        return found

    def watch(self, field_selector: str, version: str, seconds: float) -> Iterator[Seen]:
        """See `Cluster.watch`."""
        for seen in super().watch(field_selector, version, seconds):
            self._counter.append(seen.change)
            yield seen


def machine(number: int) -> str:
    """The name of one of the machines."""
    return f"machine-{number:04}"


def hosts(directory: Path) -> tuple[Host, ...]:
    """The adapters of a host where nothing is installed."""
    path = directory / "config.toml"
    path.write_text(
        f'state_root = "{directory}/state"\nrun_root = "{directory}/run"\n'
        f'unit_root = "{directory}/units"\n[agents.hostsync]\nslot_root = "{directory}/slots"\n'
    )

    def tell(_event: Event) -> None:
        """Keep it to oneself."""

    return wire(config.load(path), tell).hosts


def start(kubeconfig: Path, daemons: int, directory: Path, means: Means) -> list[Change]:
    """Start them all, a few at a time, and return where they note what comes."""
    counter: list[Change] = []
    host = hosts(directory)
    starting = threading.Semaphore(STARTING)
    for number in range(daemons):
        starting.acquire()
        me = Membership(machine=machine(number), node=machine(number), kubeconfig=kubeconfig)
        assembly.assemble(host, me, Counting(kubeconfig, counter, starting.release), means).start()
    return counter


def tally(counter: list[Change]) -> Tally:
    """Take stock."""
    seen = list(counter)
    marks = seen.count(Change.MARK)
    status = _status()
    return Tally(
        events=len(seen) - marks,
        marks=marks,
        cpu=time.process_time(),
        resident=int(status["VmRSS"].split()[0]) * 1024,
        threads=int(status["Threads"]),
    )


def _status() -> Mapping[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def main() -> None:
    """Run until the input ends."""
    kubeconfig, daemons, directory = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    chances = [float(word) for word in sys.argv[4:]]
    means = Means(chance=lambda: chances[0]) if chances else Means()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.stack_size(STACK)
    sys.setswitchinterval(SWITCH_SECONDS)
    counter = start(kubeconfig, daemons, directory, means)
    for _ in sys.stdin:
        print(msgspec.json.encode(tally(counter)).decode(), flush=True)


if __name__ == "__main__":
    main()
