"""Going back: slots, links and mirrors to what they were before an order; repeatable."""

from __future__ import annotations

from hostsync import links, slots
from hostsync.activation.host import Host
from hostsync.activation.observe import runnable
from hostsync.activation.recover import Fallback, fallback
from hostsync.errors import HostsyncError, MachineError
from hostsync.layout import TEMPORARY_PREFIX, TRASH_PREFIX
from hostsync.model import SlotName
from hostsync.record import Phase, Record
from hostsync.redaction import plain
from hostsync.state import HistoryLine, Outcome
from hostsync.sync import synchronise


def restore(host: Host, record: Record) -> Fallback:
    """Bring slots, links and mirrors back to what they were, from any point of an order.

    The links go first, so that nothing new starts from the candidate. Only renames happen here:
    what is deleted is deleted by `close`, when the service runs again. A machine that cannot
    follow is told and stays owed: every later synchronisation compares with reality.
    """
    layout = host.agent.layout
    if slots.runnable(layout, layout.slot(record.previous_slot)):
        point(host, SlotName(record.previous_slot), links_of="current")
    target, order = layout.slot(record.target_slot), record.order
    if record.staged and record.evicts:
        slots.restore(host.fs, layout, layout.evicted(order), record)
    elif record.staged and record.phase is not Phase.STAGING:
        slots.discard(host.fs, layout, target, order)
    if record.staged:
        slots.discard(host.fs, layout, layout.staging(order), order)
    goal = fallback(record, runnable(host))
    if goal.last_good is not None:
        point(host, goal.last_good, links_of="last-good")
    point(host, goal.current, links_of="current")
    mirror_all(host, tidy=False)
    return goal


def close(host: Host, record: Record, outcome: Outcome, reason: str) -> HistoryLine:
    """Tidy up, write the order's line of history, then forget the record: in this order.

    A machine that could not follow is named in the reason: it stays owed.
    """
    owed = mirror_all(host)
    sweep_leftovers(host, (TRASH_PREFIX, TEMPORARY_PREFIX))
    line = HistoryLine(
        order=record.order,
        agent=record.agent,
        source=record.source,
        version=record.candidate.version,
        digest=record.candidate.digest,
        previous_version=record.previous.version,
        outcome=outcome,
        reason=plain("; ".join(filter(None, (reason, *owed)))),
        started_at=record.created_at,
        ended_at=host.clock.wall(),
        evidence=record.evidence,
    )
    host.state.append(line)
    host.record.clear()
    return line


def sweep_leftovers(host: Host, prefixes: tuple[str, ...]) -> None:
    """Delete what begins with the prefixes in the slot root; what cannot be deleted is told.

    Space comes back before anything is written, and an immutable file in the trash must not
    keep an order from ending.
    """
    for prefix in prefixes:
        try:
            host.fs.sweep(host.agent.layout.root, prefix)
        except HostsyncError as error:
            host.event("sweep", "failed", str(host.agent.layout.root), str(error))


def point(host: Host, slot: SlotName, *, links_of: str) -> None:
    """Repoint `current` or `last-good`; one rename, nothing to do when it is so already."""
    layout = host.agent.layout
    path = layout.current if links_of == "current" else layout.last_good
    target = layout.slot(slot).name
    if links.observe(layout, path).target != target:
        host.fs.link(path, target)
        host.event("link", "complete", str(path), f"-> {target}")


def mirror_all(host: Host, *, tidy: bool = True) -> tuple[str, ...]:
    """Bring every running machine in step; what could not be done is told and returned.

    Without `tidy` whatever is merely left over in a mirror stays for later.
    """
    problems = []
    try:
        workers = host.machines.running()
    except MachineError as error:
        host.event("mirror", "failed", "machines", str(error))
        return (str(error),)
    for worker in workers:
        try:
            report = synchronise(host.machines, host.agent, worker, tidy=tidy)
            problem = report.problem
        except HostsyncError as error:
            problem = str(error)
        if problem:
            problems.append(problem)
        host.event("mirror", "failed" if problem else "complete", f"machine {worker.name}", problem)
    return tuple(problems)
