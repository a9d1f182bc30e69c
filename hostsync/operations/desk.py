"""The desk: compares what the cluster asks for with what this host knows, and acts on it.

It never waits for an order: the carrier carries out, the judge judges, and the desk looks at
records, histories and the board, tells the API, and looks again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from hostsync.activation.host import Host
from hostsync.config import Config
from hostsync.errors import ClusterCause, ClusterError, HostsyncError, Refused
from hostsync.membership import Membership
from hostsync.operations.agenda import Agenda, Begin, Delete, Known, Step, Tell, agenda
from hostsync.operations.board import Board
from hostsync.operations.carrier import Carrier
from hostsync.operations.cluster import Cluster
from hostsync.operations.demand import Demand, demand_of
from hostsync.operations.operation import Operation
from hostsync.operations.publishing import publish
from hostsync.operations.reboots import Restart, Restarts
from hostsync.operations.report import Cause, Report, failed, of_history, succeeded
from hostsync.record import Phase, Record
from hostsync.state import HistoryLine, Outcome

LOOK_SECONDS = 0.5
"""How often a record is looked at while there is one: the judge changes it, and tells nobody."""
RETRY_SECONDS = 5.0
"""When to try again what the host was too busy for."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
INTERRUPTIONS = 3
"""An operation that was cut off so often before its switch is not begun again."""
LABELS_SECONDS = 60.0

_OF_ONE_OBJECT = (ClusterCause.REJECTED, ClusterCause.CONFLICT, ClusterCause.DENIED)
"""Refusals that say nothing about what else is asked: a verb may be forbidden, a status odd."""

_PHASES: Mapping[Phase, str] = {
    Phase.STAGING: "staging and verifying the release",
    Phase.SWITCHING: "switching to the release",
    Phase.SWITCHED: "switched; the service is about to be restarted",
    Phase.TRIAL: "judging the release",
    Phase.COMMITTING: "the release is good; committing it",
    Phase.ROLLING_BACK: "the release failed; rolling back",
}


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """What a desk works with: who this host is, and the ports of each of its agents."""

    config: Config
    me: Membership
    hosts: Sequence[Host]
    cluster: Cluster
    board: Board
    carrier: Carrier
    restarts: Restarts


class Labels(msgspec.Struct, kw_only=True):
    """The labels of this host's Node, when to read them anew (monotonic), and why they lack."""

    of_node: Mapping[str, str] | None = None
    due: float = float("-inf")
    trouble: str = ""


class Desk:
    """One desk for the host."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._clock = office.hosts[0].clock
        self._labels = Labels()
        self._failures = 0
        self._unreadable = ""
        self._in_flight = False

    def run(self) -> None:
        """Look and act for ever."""
        while True:
            self._office.board.wait(self.turn())

    def turn(self) -> float | None:
        """Look and act once; return how long to wait for news at most, None for ever."""
        try:
            known = self._known()
            found = self._decide(known)
            self._act(found.steps)
        except ClusterError as error:
            return self._after(error)
        except HostsyncError as error:
            self._office.hosts[0].event("operations", "failed", "state", str(error))
            return RETRY_SECONDS
        self._failures = 0
        return self._pause(known, found)

    def _decide(self, known: Known) -> Agenda:
        office = self._office

        def read(operation: Operation) -> Demand | Report:
            return demand_of(operation, office.config)

        return agenda(office.board.operations(), office.me, known, read, self._clock.wall())

    def _known(self) -> Known:
        """What the host knows.

        Read in the order in which an operation moves on, so that none falls between two looks:
        what the carrier has, what a record has, what the history has.
        """
        office = self._office
        moving = office.carrier.moving
        busy = f"operation {next(iter(moving))} is carried out first" if moving else ""
        for record in self._records():
            uid = record.source.uid
            if uid and (record.phase is not Phase.STAGING or uid not in moving):
                moving[uid] = told(record)
            busy = f"order {record.order} ({record.agent} {record.phase}) comes first"
        return Known(
            moving=moving,
            ended=self._ended(),
            turned_away=self._turned_away(),
            busy=busy or self._unreadable,
            labels=self._node_labels(),
        )

    def _records(self) -> list[Record]:
        self._unreadable = ""
        found: list[Record | None] = []
        for host in self._office.hosts:
            try:
                found.append(host.record.load())
            except Refused as error:
                self._unreadable = str(error)
        self._in_flight = any(record is not None for record in found)
        return [record for record in found if record is not None]

    def _turned_away(self) -> dict[str, str]:
        refusal = self._office.carrier.refusal
        if refusal is None or self._clock.monotonic() - refusal.at >= RETRY_SECONDS:
            return {}
        return {refusal.uid: refusal.why}

    def _ended(self) -> dict[str, Report]:
        office = self._office
        if not any(not each.is_over for each in office.board.operations()):
            return {}
        lines = [line for host in office.hosts for line in host.state.history() if line.source.uid]
        return of_lines(lines) | of_restarts(office.restarts.all())

    def _node_labels(self) -> Mapping[str, str] | None:
        """Read only where an operation that selects machines may mean this one."""
        office, labels = self._office, self._labels
        if not any(not each.machine and not each.is_over for each in office.board.operations()):
            return labels.of_node
        now = self._clock.monotonic()
        if now >= labels.due:
            labels.due = now + self._read_labels()
        return labels.of_node

    def _read_labels(self) -> float:
        """Read them and say for how long they serve; without them only selections wait."""
        office, labels = self._office, self._labels
        try:
            labels.of_node = office.cluster.node_labels(office.me.node)
        except ClusterError as error:
            if str(error) != labels.trouble:
                office.hosts[0].event("read", "failed", f"node {office.me.node}", str(error))
            labels.trouble = str(error)
            return max(error.wait, RETRY_SECONDS)
        labels.trouble = ""
        return LABELS_SECONDS

    def _act(self, steps: Sequence[Step]) -> None:
        """Take every step; one that is refused for its own sake is raised after the others."""
        refused: ClusterError | None = None
        for step in steps:
            try:
                self._take(step)
            except ClusterError as error:
                if error.cause not in _OF_ONE_OBJECT:
                    raise
                refused = refused or error
        if refused is not None:
            raise refused

    def _take(self, step: Step) -> None:
        office = self._office
        match step:
            case Tell():
                self._tell(step)
            case Begin():
                named = f"operation {step.operation.name}"
                office.hosts[0].event("order", "started", named, step.operation.kind)
                office.carrier.begin(step.operation, step.demand)
                office.board.nudge()
            case Delete():
                self._delete(step.operation)

    def _tell(self, step: Tell) -> None:
        office, operation = self._office, step.operation
        now = self._clock.wall()
        stored = publish(office.cluster, operation, step.report, office.me.machine, now)
        if stored is None:
            office.board.forget(operation.uid)
            return
        office.board.renew(stored)
        if step.report.is_final:
            host = office.hosts[0]
            host.event("publish", "complete", f"operation {operation.name}", step.report.phase)

    def _delete(self, operation: Operation) -> None:
        try:
            self._office.cluster.delete(operation)
        except ClusterError as error:
            if error.cause not in (ClusterCause.GONE, ClusterCause.CONFLICT):
                raise
        self._office.board.forget(operation.uid)

    def _after(self, error: ClusterError) -> float:
        """How long to leave the API alone."""
        if self._failures == 1:
            self._office.hosts[0].event("publish", "failed", "operations", str(error))
        longest = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 16)
        return error.wait + longest * (0.5 + random.random() / 2)  # noqa: S311 - no secret

    def _pause(self, known: Known, found: Agenda) -> float | None:
        pauses = []
        if self._in_flight:
            pauses.append(LOOK_SECONDS)
        if known.turned_away or self._unreadable:
            pauses.append(RETRY_SECONDS)
        if self._labels.trouble:
            pauses.append(max(self._labels.due - self._clock.monotonic(), 0.1))
        if found.due is not None:
            pauses.append(max(found.due - self._clock.wall(), 0.1))
        return min(pauses, default=None)


def told(record: Record) -> str:
    """What is said of an order in flight."""
    return f"{_PHASES[record.phase]}{f': {record.reason}' if record.reason else ''}"


def of_lines(lines: Sequence[HistoryLine]) -> dict[str, Report]:
    """How operations ended, by uid; one that was cut off before its switch is begun again."""
    ended: dict[str, Report] = {}
    for line in lines:
        uid = line.source.uid
        cut = sum(each.outcome is Outcome.INTERRUPTED for each in lines if each.source.uid == uid)
        if line.outcome is not Outcome.INTERRUPTED or cut >= INTERRUPTIONS:
            ended[uid] = of_history(line)
    return ended


def of_restarts(restarts: Sequence[Restart]) -> dict[str, Report]:
    """How restarts of machines ended, by the uid of their operation."""
    return {
        each.uid: failed(Cause.EXECUTION_FAILED, each.trouble)
        if each.trouble
        else succeeded(f"machine {each.machine} was restarted and is in step")
        for each in restarts
        if each.ended_at is not None
    }
