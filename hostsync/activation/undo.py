"""Ending an order that never came to its trial: everything back, and nobody runs the candidate."""

from __future__ import annotations

from hostsync.activation.host import Host
from hostsync.activation.restore import close, restore
from hostsync.activation.service import runs_from
from hostsync.errors import UnitsError
from hostsync.ports import UnitVerb
from hostsync.record import Record
from hostsync.state import HistoryLine, Outcome


def undo(host: Host, record: Record, outcome: Outcome, reason: str) -> HistoryLine:
    """Take everything back and write the order's end.

    In the moments of a switch the agent may have been started from `current` (a crash of the
    old one, a boot): then it runs the candidate, or files that are gone, and is restarted.
    """
    before = _running(host)
    tried = runs_from(host, before, record.target_slot)
    stayed = runs_from(host, before, record.previous_slot)
    goal = restore(host, record)
    after = _running(host)
    gone = after != before or (stayed and not runs_from(host, after, goal.current))
    if after and (tried or gone):
        host.event("restart", "started", host.agent.unit, "it may run the candidate")
        host.units.reset_failed(host.agent.unit)
        host.units.queue(UnitVerb.RESTART, host.agent.unit)
    if goal.degraded:
        return close(host, record, Outcome.NOT_RESTORED, f"{reason}; {goal.degraded}")
    return close(host, record, outcome, reason)


def _running(host: Host) -> int:
    """The process of the agent's service, 0 when there is none or systemd cannot be asked."""
    try:
        return host.units.state(host.agent.unit).main_pid
    except UnitsError:
        return 0
