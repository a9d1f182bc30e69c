"""The judge at work: from a record on disk to the end of its order.

It runs in a unit of its own from last-good's code. It may be killed at any point and is started
again; all that it needs is in the record. The host's lock is held for as long as it works.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from hostsync import assets, slots
from hostsync.activation import verify
from hostsync.activation.host import Host
from hostsync.activation.judge import Bad, Watch
from hostsync.activation.recover import Duty, Fallback, duty
from hostsync.activation.restore import close, mirror_all, restore, undo
from hostsync.activation.service import runs_from, stop, watch_until_verdict
from hostsync.config import Health, Readiness
from hostsync.errors import HostsyncError, MachineError
from hostsync.model import SlotName
from hostsync.ports import UnitVerb
from hostsync.record import Phase, Record, TrialState
from hostsync.state import HistoryLine, KnownBad, Outcome
from hostsync.sync import synchronise

MAX_ATTEMPTS = 5
"""Judgements begun (reboots included) before an order is taken for bad."""
EVIDENCE_LINES = 20
RESTORED_WINDOW_SECONDS = 1.0
"""How long the restored release must stay up before the roll back counts as done."""


def settle(host: Host) -> HistoryLine | None:
    """Bring the order that the record holds to its end; None when there is no record."""
    record = host.record.load()
    if record is None:
        return None
    match duty(record):
        case Duty.UNDO:
            return settle_undo(host, record)
        case Duty.TRY:
            return _try(host, record)
        case Duty.COMMIT:
            return _commit(host, record)
        case Duty.ROLL_BACK:
            return _roll_back(host, record)


def settle_undo(host: Host, record: Record) -> HistoryLine | None:
    """Undo an order whose writer died before the switch was recorded.

    A host that lost power in between may have booted the candidate: it is restarted then.
    """
    pid = host.units.state(host.agent.unit).main_pid
    candidate_runs = runs_from(host, pid, record.target_slot)
    undo(host, record, Outcome.INTERRUPTED, f"interrupted while {record.phase}")
    if candidate_runs:
        host.units.reset_failed(host.agent.unit)
        host.units.queue(UnitVerb.RESTART, host.agent.unit)
    return host.state.find(record.order)


def _try(host: Host, record: Record) -> HistoryLine:
    record, job = _begin(host, record)
    trial = record.trial
    if trial is None or trial.attempts > MAX_ATTEMPTS:
        return _reject(host, record, f"{MAX_ATTEMPTS} judgements ended without a verdict")
    if record.restart:
        watch = Watch(
            health=host.agent.health, started=trial.started, baseline=trial.baseline_invocation
        )
        verdict = watch_until_verdict(host, watch, job, record.target_slot)
        if isinstance(verdict, Bad):
            return _reject(host, record, verdict.reason)
    problem = _machines_problem(host, record)
    if problem:
        return _reject(host, record, problem)
    host.event("judge", "complete", record.candidate.version, "good")
    return _commit(host, _at(host, record, Phase.COMMITTING))


def _begin(host: Host, record: Record) -> tuple[Record, str | None]:
    """Ask for the restart, once per boot; a judge that was killed goes on where it stopped."""
    unit, boot = host.agent.unit, host.clock.boot_id()
    trial = record.trial
    state = host.units.state(unit)
    rebooted = trial is not None and trial.boot_id != boot
    if trial is None or rebooted:
        trial = TrialState(
            boot_id=boot,
            started=host.clock.monotonic(),
            baseline_invocation="" if rebooted else state.invocation,
            attempts=1 if trial is None else trial.attempts + 1,
        )
        record = host.put(
            msgspec.structs.replace(_dated(host, record), phase=Phase.TRIAL, trial=trial)
        )
    if not record.restart:
        return record, None
    if rebooted or state.invocation == trial.baseline_invocation:
        host.units.reset_failed(unit)
        verb = UnitVerb.START if rebooted else UnitVerb.RESTART
        host.event("restart", "started", unit, record.candidate.version)
        return record, host.units.queue(verb, unit)
    return record, None


def _machines_problem(host: Host, record: Record) -> str:
    """Why some machine is not as it should be at the end of the window; empty when all are."""
    if record.best_effort:
        mirror_all(host)
        return ""
    try:
        workers = host.machines.running()
    except MachineError as error:
        return str(error)
    current = host.agent.layout.slot(record.target_slot)
    for worker in workers:
        try:
            report = synchronise(host.machines, host.agent, worker)
        except MachineError as error:
            return str(error)
        if report.problem:
            return report.problem
        if host.agent.self_test and record.self_test_before.get(worker.name) == 0:
            after = verify.self_test(host, worker, current)
            if after != 0:
                return (
                    f"the credential self-test in machine {worker.name} ended with status {after}; "
                    "it succeeded before the switch"
                )
    return ""


def _commit(host: Host, record: Record) -> HistoryLine:
    layout = host.agent.layout
    slots.discard(host.fs, layout, layout.evicted(record.order), record.order)
    _converge_assets(host, record.target_slot)
    host.state.forgive(record.candidate.digest)
    line = close(host, record, Outcome.COMPLETE, "")
    host.event("commit", "complete", record.candidate.version)
    return line


def _reject(host: Host, record: Record, reason: str) -> HistoryLine:
    host.event("judge", "failed", record.candidate.version, reason)
    invocation = host.units.state(host.agent.unit).invocation
    record = msgspec.structs.replace(record, reason=reason, failed_invocation=invocation)
    return _roll_back(host, _at(host, record, Phase.ROLLING_BACK))


def _roll_back(host: Host, record: Record) -> HistoryLine:
    host.event("roll back", "started", record.previous.version, record.reason)
    goal = restore(host, record)
    _converge_assets(host, goal.current)
    trouble = goal.degraded
    if record.restart:
        trouble = "; ".join(filter(None, (trouble, _start_again(host, goal))))
        evidence = host.probe.journal(host.agent.unit, record.failed_invocation, EVIDENCE_LINES)
        record = msgspec.structs.replace(record, evidence=list(evidence))
    host.state.mark_bad(
        KnownBad(
            digest=record.candidate.digest,
            version=record.candidate.version,
            reason=record.reason,
            at=host.clock.wall(),
        )
    )
    outcome = Outcome.NOT_RESTORED if trouble else Outcome.ROLLED_BACK
    reason = f"{record.reason}; and then: {trouble}" if trouble else record.reason
    line = close(host, record, outcome, reason)
    host.event("roll back", "failed" if trouble else "complete", record.previous.version, trouble)
    return line


def _start_again(host: Host, goal: Fallback) -> str:
    """Start the release that the links name again and judge it; why it failed, or nothing.

    One try: after a failure the service stays with systemd's own restarts.
    """
    unit = host.agent.unit
    try:
        stop(host)
        host.units.reset_failed(unit)
        baseline = host.units.state(unit).invocation
        started = host.clock.monotonic()
        job = host.units.queue(UnitVerb.START, unit)
        watch = Watch(
            health=_restored_health(host.agent.health), started=started, baseline=baseline
        )
        verdict = watch_until_verdict(host, watch, job, goal.current)
    except HostsyncError as error:
        return str(error)
    return f"the release restored failed too: {verdict.reason}" if isinstance(verdict, Bad) else ""


def _restored_health(health: Health) -> Health:
    stable = health.stable_seconds if health.readiness is Readiness.STABLE else 0.0
    window = min(health.window_seconds, RESTORED_WINDOW_SECONDS)
    return replace(health, window_seconds=window, stable_seconds=stable)


def _converge_assets(host: Host, slot: SlotName) -> None:
    """Bring the service assets of that slot's release; trouble is told and not fatal."""
    if not host.agent.owns_assets:
        return
    content = host.agent.layout.slot(slot)
    try:
        assets.converge(host.fs, assets.of_release(host.config, host.agent, content))
        # A judge killed after the last write finds nothing to write: systemd is told in any case.
        host.units.reload()
    except HostsyncError as error:
        host.event("assets", "failed", str(content), str(error))


def _at(host: Host, record: Record, phase: Phase) -> Record:
    return host.put(msgspec.structs.replace(_dated(host, record), phase=phase))


def _dated(host: Host, record: Record) -> Record:
    return msgspec.structs.replace(record, updated_at=host.clock.wall())
