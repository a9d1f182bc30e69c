"""Around an order: what an earlier one left is settled first, and its verdict is waited for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from hostsync.activation.host import Host
from hostsync.activation.recover import Duty, duty
from hostsync.activation.restore import sweep_leftovers
from hostsync.activation.service import JUDGE_UNIT
from hostsync.activation.undo import undo
from hostsync.errors import Busy, Failed, HostsyncError
from hostsync.layout import STAGING_PREFIX, TEMPORARY_PREFIX, TRASH_PREFIX
from hostsync.ports import UnitVerb
from hostsync.record import Phase, Record
from hostsync.state import HistoryLine, Outcome

TICK_SECONDS = 0.1
SLACK_SECONDS = 120.0
"""How long beyond its own limits a judge may take before the follower stops waiting."""


def settle_all(hosts: Iterable[Host]) -> None:
    """Finish or undo what every agent's record holds; the caller holds the host's lock.

    Raises Busy, naming the order, when a switch is under judgement: the judge is started in
    case it does not run. Leftovers of killed orders are removed.
    """
    for host in hosts:
        record = host.record.load()
        if record is None:
            _sweep(host)
        elif duty(record) is Duty.UNDO:
            undo(host, record, Outcome.INTERRUPTED, f"interrupted while {record.phase}")
        else:
            with suppress(HostsyncError):
                host.units.queue(UnitVerb.RESTART, JUDGE_UNIT)
            raise Busy(
                f"busy: order {record.order} ({record.agent} {record.candidate.version}) is "
                f"in flight, {record.phase}",
                remedy="wait for its verdict (`hostsync status` shows it) and order again",
            )


def is_unsettled(host: Host) -> bool:
    """Whether there is a record or a staging place: of an order in flight, or of one killed."""
    root = host.agent.layout.root
    return host.record.path.exists() or any(root.glob(f"{STAGING_PREFIX}*"))


def follow(host: Host, order: str) -> HistoryLine:
    """Wait until the judge is done with an order and has tidied up, telling each phase.

    Raises Failed when no verdict comes within all limits; the order itself goes on.
    """
    health = host.agent.health
    limit = health.start_seconds * 2 + health.window_seconds + health.stable_seconds
    deadline = host.clock.monotonic() + limit + SLACK_SECONDS
    told: Phase | None = None
    while True:
        # The history is written before the record goes: in this order none is missed.
        record = _load(host)
        line = host.state.find(order)
        if line is not None and (record is None or record.order != order):
            return line
        if record is not None and record.order == order and record.phase is not told:
            told = record.phase
            host.event(str(told), "started", record.agent, record.reason)
        if host.clock.monotonic() > deadline:
            raise Failed(
                f"order {order} has no verdict after {limit + SLACK_SECONDS:g} s",
                remedy=f"see `hostsync status` and `journalctl -u {JUDGE_UNIT}`",
            )
        host.clock.sleep(TICK_SECONDS)


def _load(host: Host) -> Record | None:
    with suppress(HostsyncError):
        return host.record.load()
    return None


def _sweep(host: Host) -> None:
    """Remove what killed processes left; whatever a link or a record names is never among it."""
    if host.agent.layout.root.is_dir():
        sweep_leftovers(host, (STAGING_PREFIX, TRASH_PREFIX, TEMPORARY_PREFIX))
    if host.record.path.parent.is_dir():
        host.fs.sweep(host.record.path.parent, TEMPORARY_PREFIX)
