"""What a fleet of daemons asks of the Kubernetes API, from one host to a thousand.

    python -m benchmarks.fleet --daemons 1 100 1000

The daemons (benchmarks/crowd.py) are one process, the API stub (benchmarks/stub.py) another; they
speak TLS over loopback. Figures are per node, in parentheses as a ratio to those of the smallest
fleet, and each node is given one operation, whose verdict its desk writes. `field` is how the
definition is deployed, with a field selector; `client` is the peer, a server that has none, where
every host sees all operations. As that grows with the square of the fleet, it is given --orders
operations at most, and what one of them costs all nodes together is what one for each would cost
each. Then the stub is killed and started again: requests in each second, and the busiest against
the mean. `in step` is the same where chance is a constant: the herd that chance prevents, as far as
this machine can shake so many hands; tests/operations/test_herd.py has it in played time.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from benchmarks.crowd import Tally, machine
from benchmarks.processes import Server, answer, end, spawn
from e2e.records import Exchange

LIMIT = 900.0
"""Seconds after which a fleet that is not complete is given up."""
LOOK_SECONDS = 0.5
QUIET_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What nodes and server had said to each other up to a moment, or between two."""

    requests: float
    events: float
    sent: float
    received: float

    def since(self, before: Self, each: float) -> Traffic:
        """What came after `before`, for each of so many."""
        return Traffic(
            requests=(self.requests - before.requests) / each,
            events=(self.events - before.events) / each,
            sent=(self.sent - before.sent) / each,
            received=(self.received - before.received) / each,
        )


NONE = Traffic(requests=0, events=0, sent=0, received=0)


class Fleet:
    """A server and so many daemons."""

    def __init__(self, server: Server, crowd: subprocess.Popen[bytes], watches: int) -> None:
        self.server, self._crowd, self._watches = server, crowd, watches

    def tally(self) -> Tally:
        """What the daemons have seen."""
        return msgspec.json.decode(answer(self._crowd, b"{}"), type=Tally)

    def traffic(self) -> Traffic:
        """Everything so far; valid as long as the server was not killed."""
        count, tally = self.server.ask(), self.tally()
        return Traffic(
            requests=len(self.server.requests()),
            events=tally.events,
            sent=count.sent,
            received=count.received,
        )

    def await_watches(self) -> None:
        """Return once every daemon has its watches."""
        _wait_for(lambda: self.server.ask().watchers >= self._watches)

    def await_verdicts(self, orders: int) -> None:
        """Return once so many operations are over and nothing more is told of them."""
        _wait_for(lambda: self.server.ask().ended >= orders)
        seen, since = self.tally().events, time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            time.sleep(LOOK_SECONDS)
            if (now := self.tally().events) != seen:
                seen, since = now, time.monotonic()


@contextmanager
def fleet(mode: str, daemons: int, *chance: str) -> Iterator[Fleet]:
    """A server and its daemons, started and not awaited."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        server = Server(top / "server", mode)
        words = [str(server.kubeconfig()), str(daemons), name, *chance]
        crowd = spawn("benchmarks.crowd", *words)
        try:
            yield Fleet(server, crowd, daemons * (2 if mode == "field" else 1))
        finally:
            end(crowd)
            server.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Per node: what a start costs, and an operation from order to verdict."""

    start: Traffic
    order: Traffic


def measure(team: Fleet, daemons: int, orders: int) -> Costs:
    """Await the start, and have operations carried out."""
    team.await_watches()
    started = team.traffic()
    team.server.ask(*map(machine, range(orders)))
    team.await_verdicts(orders)
    return Costs(start=started.since(NONE, daemons), order=team.traffic().since(started, orders))


def idle(team: Fleet, daemons: int, seconds: float) -> str:
    """What nodes cost that only wait, in a line."""
    before, used = team.traffic(), team.tally().cpu
    time.sleep(seconds)
    tally = team.tally()
    minutes = seconds / 60
    told = team.traffic().since(before, daemons * minutes)
    cpu = 1000 * (tally.cpu - used) / daemons / minutes
    return (
        f"  idle     a minute: {told.requests:.2f} requests, {told.sent:.0f} bytes received, "
        f"{cpu:.2f} ms of CPU; {tally.threads} threads, "
        f"{tally.resident / daemons / 1024:.0f} KiB of memory a node"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """How a fleet came back: what was asked, and how long the API was away, in seconds."""

    asked: Sequence[Exchange]
    away: float


def restart(team: Fleet, down: float) -> Return:
    """Kill the server, start it again later, and return when every watch is there again."""
    before = len(team.server.requests())
    died = time.monotonic()
    team.server.kill()
    time.sleep(down)
    team.server.start()
    away = time.monotonic() - died
    team.await_watches()
    return Return(asked=team.server.requests()[before:], away=away)


def histogram(asked: Sequence[Exchange], daemons: int) -> Iterator[str]:
    """Requests in each second since the first, as lines."""
    times = sorted(each.time - asked[0].time for each in asked)
    seconds = Counter(map(int, times))
    peak, mean = max(seconds.values()), len(times) / (max(seconds) + 1)
    half, most = (times[int(len(times) * share)] for share in (0.5, 0.9))
    yield (
        f"    {len(times) / daemons:.2f} requests a node: half within {half:.1f} s, nine tenths "
        f"within {most:.1f} s, all within {times[-1]:.1f} s"
    )
    yield (
        f"    busiest second {peak} ({peak / daemons:.2f} a node), mean {mean:.1f}, "
        f"ratio {peak / mean:.1f}"
    )
    for second, found in sorted(seconds.items()):
        yield f"    {second:>4} s {found:>6} {'#' * round(50 * found / peak)}".rstrip()


def table(mode: str, daemons: int, costs: Costs, base: Costs) -> Iterator[str]:
    """Costs and their ratios to those of the smallest fleet, as lines."""
    yield f"{mode}, {daemons} daemons"
    for name, of, to in (
        ("start", costs.start, base.start),
        ("order", costs.order, base.order),
    ):
        words = [
            f"{label} {value:.1f} ({value / against:.2f})" if against else f"{label} {value:.1f}"
            for label, value, against in (
                ("requests", of.requests, to.requests),
                ("events", of.events, to.events),
                ("bytes received", of.sent, to.sent),
                ("sent", of.received, to.received),
            )
        ]
        yield f"  {name:8} {', '.join(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--daemons", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--orders", type=int, default=20, help="for the peer at most")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds; 0 leaves it out")
    parser.add_argument("--down", type=float, nargs="*", default=[1.0, 30.0])
    options = parser.parse_args()
    bases: dict[str, Costs] = {}
    for mode in ("field", "client"):
        for daemons in options.daemons:
            orders = daemons if mode == "field" else min(daemons, options.orders)
            with fleet(mode, daemons) as team:
                costs = measure(team, daemons, orders)
                bases.setdefault(mode, costs)
                _print(table(mode, daemons, costs, bases[mode]))
                if mode == "field":
                    if options.idle:
                        print(idle(team, daemons, options.idle), flush=True)
                    recover(team, daemons, options.down, "as it is")
    most = max(options.daemons)
    with fleet("field", most, "0.5") as team:
        measure(team, most, most)
        recover(team, most, options.down, "in step")


def recover(team: Fleet, daemons: int, downs: Sequence[float], name: str) -> None:
    """Print how a fleet comes back after each time that the API was down."""
    for down in downs:
        back = restart(team, down)
        print(f"  {name}, {daemons} daemons, the API away for {back.away:.1f} s")
        _print(histogram(back.asked, daemons))


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"not there after {LIMIT:g} s")
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
