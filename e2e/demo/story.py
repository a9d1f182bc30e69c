"""The demonstration itself: five orders on a real host, everything watched, nothing judged yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.demo import eye, reading
from e2e.demo.model import Act, Event, Kind, Story
from e2e.lab import Lab
from e2e.node import Node
from e2e.records import Beat, CommandFailedError, Completed
from e2e.releases import CRASH, HANG, Releases
from e2e.world.conduct import Conduct

START_SECONDS = 10
WINDOW_SECONDS = 3
TOKEN_SECONDS = 4
"""So short a life has the shim fetch one in every few beats, under each release in turn."""
BUSY = 4
BUSY_SECONDS = 10.0
"""How long an order is repeated while the judge of the one before lets go of the host's lock."""
CONFIG = f"""\
[agents.hostsync]
start_seconds = {START_SECONDS}
window_seconds = {WINDOW_SECONDS}
"""
SERVICE = "hostsync.service"
JUDGE = "hostsync-judge.service"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of the script, and how to come by its release."""

    kind: Kind
    release: str
    title: str
    make: Callable[[Releases], Path]


FIRST = Order(kind=Kind.INSTALL, release="1.0.0", title="first install", make=Releases.base)
ORDERS = (
    Order(
        kind=Kind.GOOD,
        release="1.1.0",
        title="works",
        make=lambda releases: releases.good("1.1.0"),
    ),
    Order(
        kind=Kind.CRASH,
        release="1.2.0",
        title="crashes at once",
        make=lambda releases: releases.broken_daemon("1.2.0", CRASH),
    ),
    Order(
        kind=Kind.HANG,
        release="1.3.0",
        title="hangs, never ready",
        make=lambda releases: releases.broken_daemon("1.3.0", HANG),
    ),
    Order(
        kind=Kind.BROKEN_INSIDE,
        release="1.4.0",
        title="its shim fails in the machine only",
        make=lambda releases: releases.broken_shim_in_machine("1.4.0"),
    ),
)


def make_releases(releases: Releases) -> None:
    """Have every release of the script ready, so that no order waits for a build."""
    for order in (FIRST, *ORDERS):
        order.make(releases)


def run_story(lab: Lab, releases: Releases, say: Say) -> Story:
    """Play the script on a new lab and return what was seen.

    Whatever goes wrong with hostsync is part of the story; raises only where the lab itself fails.
    """
    node = Node(lab, releases)
    _prepare(node)
    acts = [_install(node, say)]
    begun, _ = _await_beat(lab, FIRST.release)
    acts += [_upgrade(node, order, say) for order in ORDERS]
    # The watch ends with a beat that began behind the last verdict: no gap can hide at its end.
    _, ended = _await_beat(lab, since=max(act.ended for act in acts))
    status = _hostsync(lab, "status")
    host, machine = eye.seen(lab)
    api = lab.api_log()
    stored = reading.renewals(api)
    beats = lab.beats()
    watched = [beat for beat in beats if begun <= beat.start / 1000]
    return Story(
        acts=tuple(_with_journal(acts, _journal(lab, acts[0].began))),
        host=host,
        machine=machine,
        beats=beats,
        renewals=tuple(each.time for each in stored),
        refusals=sum(each.status == 401 for each in api),
        tokens=reading.token_uses(watched, lab.imds_log(), stored),
        watched=(begun, ended),
        start_seconds=START_SECONDS,
        load=os.getloadavg()[0] / (os.cpu_count() or 1),
        ending=reading.ending_of(reading.json_lines(status.out), status.code),
    )


def _prepare(node: Node) -> None:
    lab = node.lab
    lab.tell("imds", Conduct(token_lifetime=TOKEN_SECONDS))
    lab.write("/etc/hostsync/config.toml", CONFIG)
    for order in (FIRST, *ORDERS):
        node.give(order.make(node.releases))
    lab.host_script(f"tar -xzf {node.give(FIRST.make(node.releases))} -C /root")
    eye.open_eyes(lab)


def _install(node: Node, say: Say) -> Act:
    program = "/root/hostsync-linux-*/bin/hostsync"

    def command() -> Completed:
        return node.lab.host_script(f"exec {program} --output json install", check=False)

    return _carry_out(FIRST, command, say)


def _upgrade(node: Node, order: Order, say: Say) -> Act:
    path = node.give(order.make(node.releases))
    return _carry_out(order, lambda: _hostsync(node.lab, "upgrade", path), say)


def _hostsync(lab: Lab, *words: str) -> Completed:
    return lab.host("hostsync", "--output", "json", *words, check=False)


def _carry_out(order: Order, command: Callable[[], Completed], say: Say) -> Act:
    """Give an order, again while the host is busy, and write down how it ended."""
    say(f"{order.release} is ordered: {order.title}")
    patience = time.monotonic() + BUSY_SECONDS
    busy = -1
    while True:
        busy += 1
        began = time.time()
        done = command()
        if done.code != BUSY or time.monotonic() > patience:
            break
    lines = reading.json_lines(done.out)
    outcome, reason = reading.outcome_of(lines, done.code)
    act = Act(
        kind=order.kind,
        release=order.release,
        title=order.title,
        began=began,
        ended=time.time(),
        code=done.code,
        outcome=outcome,
        reason=reason,
        events=reading.told(lines),
        busy=busy,
    )
    say(f"{order.release}: {outcome} after {act.took:.1f} s, exit {act.code}")
    return act


def _await_beat(lab: Lab, release: str = "", since: float = 0.0) -> tuple[float, float]:
    """The span of the next good beat; of nothing, now, if none comes: the promises tell that."""

    def is_it(beat: Beat) -> bool:
        return beat.ok and release in ("", beat.release) and beat.start / 1000 >= since

    try:
        beat = lab.await_beat(is_it)
    except TimeoutError:
        return time.time(), time.time()
    return beat.start / 1000, beat.end / 1000


def _journal(lab: Lab, since: float) -> tuple[Event, ...]:
    try:
        service, judge = lab.journal(SERVICE, since), lab.journal(JUDGE, since)
    except CommandFailedError:
        return ()
    return (*reading.served(service), *reading.judged(judge))


def _with_journal(acts: list[Act], events: tuple[Event, ...]) -> list[Act]:
    """Give each act what the journal holds of its time, all in the order in which it happened."""
    ends = [*(act.began for act in acts[1:]), float("inf")]
    return [
        replace(act, until=until, events=_between(act.began, until, (*act.events, *events)))
        for act, until in zip(acts, ends, strict=True)
    ]


def _between(begun: float, ended: float, events: Iterable[Event]) -> tuple[Event, ...]:
    ours = [event for event in events if begun <= event.at < ended]
    return tuple(sorted(ours, key=lambda event: event.at))
