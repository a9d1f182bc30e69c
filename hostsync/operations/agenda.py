"""What to do next about the operations there are: pure.

Decided anew each time from what the API holds and what the host knows, so that a restart, a lost
write or an event seen twice changes nothing: an operation is begun when neither a record nor a
history knows its uid, and reported on as long as its status says something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from hostsync.membership import Membership
from hostsync.operations.demand import Demand
from hostsync.operations.operation import TERMINAL, Operation, Phase, epoch
from hostsync.operations.report import Report, is_told, pending, under_way
from hostsync.operations.selection import selects

Read = Callable[[Operation], Demand | Report]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the host knows of operations, by uid.

    `moving` says how far those have come that are being carried out, `ended` how others ended,
    `turned_away` why one could not be begun lately. `busy` says what keeps the host from
    beginning any, empty when nothing does. `labels` are those of this host's Node, None while
    they are not known.
    """

    moving: Mapping[str, str] = msgspec.field(default_factory=dict)
    ended: Mapping[str, Report] = msgspec.field(default_factory=dict)
    turned_away: Mapping[str, str] = msgspec.field(default_factory=dict)
    busy: str = ""
    labels: Mapping[str, str] | None = None


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Have an operation's status say this."""

    operation: Operation
    report: Report


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Carry an operation out."""

    operation: Operation
    demand: Demand


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an operation whose time after its end has passed."""

    operation: Operation


Step = Tell | Begin | Delete


class Agenda(msgspec.Struct, frozen=True, kw_only=True):
    """The steps to take, and when something is due next (seconds since the epoch, or never)."""

    steps: tuple[Step, ...] = ()
    due: float | None = None


def agenda(
    operations: Iterable[Operation], me: Membership, known: Known, read: Read, now: float
) -> Agenda:
    """What to do about these operations; the oldest is begun first, one at a time."""
    steps: list[Step] = []
    due: float | None = None
    ahead = known.busy
    for operation in sorted(operations, key=lambda each: (each.created, each.name)):
        if not is_mine(operation, me, known.labels):
            continue
        if is_over(operation, me):
            when = _expiry(operation, me)
            if when is not None and when <= now:
                steps.append(Delete(operation=operation))
            elif when is not None:
                due = when if due is None else min(due, when)
            continue
        decided = _decide(operation, known, read, ahead)
        if isinstance(decided, Report):
            if not is_told(operation, decided, me.machine):
                steps.append(Tell(operation=operation, report=decided))
            if decided.phase is Phase.PENDING:
                # Two that are turned away in turn would each be the other's chance, for ever.
                ahead = ahead or f"operation {operation.name} is carried out first"
        else:
            steps.append(Begin(operation=operation, demand=decided))
            ahead = f"operation {operation.name} is carried out first"
    return Agenda(steps=tuple(steps), due=due)


def is_mine(operation: Operation, me: Membership, labels: Mapping[str, str] | None) -> bool:
    """Whether an operation means this host, by name or by its Node's labels."""
    if operation.machine:
        return operation.machine == me.machine
    return (
        me.selectors
        and labels is not None
        and operation.selector is not None
        and selects(operation.selector, labels)
    )


def is_over(operation: Operation, me: Membership) -> bool:
    """Whether nothing more is to be said of it by this host."""
    if operation.is_over:
        return True
    entry = operation.target(me.machine) if not operation.machine else None
    return entry is not None and entry.phase in TERMINAL


def _decide(operation: Operation, known: Known, read: Read, ahead: str) -> Report | Demand:
    ended = known.ended.get(operation.uid)
    if ended is not None:
        return ended
    moving = known.moving.get(operation.uid)
    if moving is not None:
        return under_way(moving)
    demand = read(operation)
    if isinstance(demand, Report):
        return demand
    waits_for = known.turned_away.get(operation.uid) or ahead
    return pending(waits_for) if waits_for else demand


def _expiry(operation: Operation, me: Membership) -> float | None:
    """When it may be deleted: only what names this host is this host's to delete."""
    completed = epoch(operation.completed)
    if operation.machine != me.machine or operation.ttl is None or completed is None:
        return None
    return completed + operation.ttl if operation.is_over else None
