"""The judge at work: from a record on disk to the end of its order.

It runs in a unit of its own from last-good's code. It may be killed at any point and is started
again; all that it needs is in the record. The host's lock is held for as long as it works.
"""

from __future__ import annotations

import msgspec

from hostsync import assets, slots
from hostsync.activation.followers import await_followers
from hostsync.activation.host import Host
from hostsync.activation.judge import Bad, Watch
from hostsync.activation.recover import Duty, Fallback, duty
from hostsync.activation.restore import close, restore
from hostsync.activation.service import runs_from, stop, watch_until_verdict
from hostsync.activation.undo import undo
from hostsync.config import Health, Readiness
from hostsync.errors import DiskError, HostsyncError, UnitsError
from hostsync.model import SlotName
from hostsync.ports import UnitVerb
from hostsync.record import Phase, Record, TrialState
from hostsync.redaction import plain
from hostsync.state import HistoryLine, KnownBad, Outcome

MAX_ATTEMPTS = 5
"""Judgements begun (reboots included) before an order is taken for bad."""
MAX_RESUMPTIONS = 60
"""How often a judge may begin to go back before trouble with systemd is final."""
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
            return undo(host, record, Outcome.INTERRUPTED, f"interrupted while {record.phase}")
        case Duty.TRY:
            return _try(host, record)
        case Duty.COMMIT:
            return _commit(host, record)
        case Duty.ROLL_BACK:
            return _roll_back(host, record)


def _try(host: Host, record: Record) -> HistoryLine:
    try:
        return _judge(host, record)
    except UnitsError as error:
        # The judge is started again and goes on, unless systemd refuses for good.
        latest = host.record.load() or record
        if not _is_out_of_patience(host, latest):
            raise
        return _reject(host, latest, f"systemd did not do what was asked: {error}", blame=False)


def _judge(host: Host, record: Record) -> HistoryLine:
    record, job = _begin(host, record)
    trial = record.trial
    if trial is None or trial.attempts > MAX_ATTEMPTS:
        reason = f"{MAX_ATTEMPTS} judgements ended without a verdict"
        return _reject(host, record, reason, blame=True)
    if record.restart:
        watch = Watch(
            health=host.agent.health,
            started=trial.started,
            baseline=trial.baseline_invocation,
            restarts=trial.baseline_restarts,
        )
        verdict = watch_until_verdict(host, watch, job, record.target_slot)
        if isinstance(verdict, Bad):
            return _reject(host, record, verdict.reason, blame=True)
    found = await_followers(host, record)
    if found is not None:
        return _reject(host, record, found.reason, blame=found.blames_release)
    host.event("judge", "complete", record.candidate.version, "good")
    return _commit(host, _at(host, record, Phase.COMMITTING))


def _is_out_of_patience(host: Host, record: Record) -> bool:
    trial = record.trial
    if trial is None or trial.boot_id != host.clock.boot_id():
        return False
    health = host.agent.health
    return host.clock.monotonic() - trial.started > health.start_seconds + health.window_seconds


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
            baseline_restarts=state.restarts,
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


def _commit(host: Host, record: Record) -> HistoryLine:
    layout = host.agent.layout
    slots.discard(host.fs, layout, layout.evicted(record.order), record.order)
    _converge_assets(host, record.target_slot)
    host.state.forgive(record.candidate.digest)
    line = close(host, record, Outcome.COMPLETE, "")
    host.event("commit", "complete", record.candidate.version)
    return line


def _reject(host: Host, record: Record, reason: str, *, blame: bool) -> HistoryLine:
    """Go back. With `blame` the release is remembered as bad: the fault is known to be its own."""
    reason = plain(reason)
    host.event("judge", "failed", record.candidate.version, reason)
    invocation = host.units.state(host.agent.unit).invocation
    return _roll_back(
        host,
        msgspec.structs.replace(record, reason=reason, blame=blame, failed_invocation=invocation),
    )


def _roll_back(host: Host, record: Record) -> HistoryLine:
    record = _noted(host, record)
    host.event("roll back", "started", record.previous.version, record.reason)
    goal = restore(host, record)
    _converge_assets(host, goal.current)
    trouble = goal.degraded
    if record.restart:
        trouble = "; ".join(filter(None, (trouble, _started_again(host, record, goal))))
        record = msgspec.structs.replace(record, evidence=_last_words(host, record))
    if record.blame:
        _remember(host, record)
    outcome = Outcome.NOT_RESTORED if trouble else Outcome.ROLLED_BACK
    reason = f"{record.reason}; and then: {trouble}" if trouble else record.reason
    line = close(host, record, outcome, reason)
    host.event("roll back", "failed" if trouble else "complete", record.previous.version, trouble)
    return line


def _last_words(host: Host, record: Record) -> list[str]:
    """What the release on trial logged at last, with what was restored since left out."""
    unit = host.agent.unit
    try:
        restored = host.units.state(unit).invocation
    except UnitsError:
        restored = ""
    before = "" if record.trial is None else record.trial.baseline_invocation
    return list(host.probe.journal(unit, EVIDENCE_LINES, after=before, but=restored))


def _noted(host: Host, record: Record) -> Record:
    """Record that going back has begun; a full disk must not keep anybody from going back."""
    record = msgspec.structs.replace(
        _dated(host, record), phase=Phase.ROLLING_BACK, resumptions=record.resumptions + 1
    )
    try:
        host.record.store(record)
    except DiskError as error:
        host.event("record", "failed", str(host.record.path), str(error))
    return record


def _remember(host: Host, record: Record) -> None:
    bad = KnownBad(
        digest=record.candidate.digest,
        version=record.candidate.version,
        reason=record.reason,
        at=host.clock.wall(),
    )
    try:
        host.state.mark_bad(bad)
    except DiskError as error:
        host.event("remember", "failed", record.candidate.version, str(error))


def _started_again(host: Host, record: Record, goal: Fallback) -> str:
    """Start the release that the links name again; why that failed, or nothing.

    When systemd cannot be asked the judge ends and is started again, up to a limit: an agent
    that was stopped must not stay so because a bus restarted.
    """
    try:
        return _start_again(host, record, goal)
    except UnitsError as error:
        if record.resumptions < MAX_RESUMPTIONS:
            raise
        return str(error)


def _start_again(host: Host, record: Record, goal: Fallback) -> str:
    """Start the restored release and judge it; why it failed, or nothing.

    One try: after a failure the service stays with systemd's own restarts. What a judge before
    this one has restored already is left alone.
    """
    unit = host.agent.unit
    state = host.units.state(unit)
    is_new = state.invocation != record.failed_invocation
    if state.active == "active" and is_new and runs_from(host, state.main_pid, goal.current):
        return ""
    try:
        stop(host)
    except UnitsError as error:
        host.event("stop", "failed", unit, str(error))
    host.units.reset_failed(unit)
    state = host.units.state(unit)
    started = host.clock.monotonic()
    job = host.units.queue(UnitVerb.START, unit)
    watch = Watch(
        health=_restored_health(host.agent.health),
        started=started,
        baseline=state.invocation,
        restarts=state.restarts,
    )
    verdict = watch_until_verdict(host, watch, job, goal.current)
    return f"the release restored failed too: {verdict.reason}" if isinstance(verdict, Bad) else ""


def _restored_health(health: Health) -> Health:
    stable = health.stable_seconds if health.readiness is Readiness.STABLE else 0.0
    window = min(health.window_seconds, RESTORED_WINDOW_SECONDS)
    return msgspec.structs.replace(health, window_seconds=window, stable_seconds=stable)


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
