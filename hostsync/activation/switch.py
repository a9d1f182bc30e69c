"""An order from its first check to the judge's hands: stage, verify, switch, hand over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from hostsync import assets, slots
from hostsync.activation.candidacy import Ready, candidacy, discard, new_order
from hostsync.activation.host import Host
from hostsync.activation.observe import observe
from hostsync.activation.plan import NothingToDo, Plan, plan_rollback
from hostsync.activation.restore import mirror_all, point
from hostsync.activation.service import JUDGE_UNIT, hand_to_judge
from hostsync.activation.stage import (
    Options,
    clear_mirrors,
    self_tests,
    stage_and_verify,
    workers,
)
from hostsync.activation.undo import undo
from hostsync.errors import Failed, HostsyncError, MachineError, Reason, Refused
from hostsync.model import Seal
from hostsync.record import Phase, Record, ReleaseId
from hostsync.release import Given
from hostsync.state import Outcome


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate is current and the judge has the order."""

    order: str
    version: str


def preflight(host: Host, given: Given, options: Options) -> Plan | NothingToDo:
    """Run every check that can block an upgrade, the candidate's `version` included.

    Changes nothing that lasts: the candidate is unpacked beside the slots, asked, and removed.
    Raises what `upgrade` would raise.
    """
    with candidacy(host, given, options) as ready:
        if isinstance(ready, NothingToDo):
            return ready
        try:
            _stage(host, ready, options, in_mirrors=False)
        finally:
            discard(host, ready.order)
            clear_mirrors(host)
        return ready.plan


def upgrade(host: Host, given: Given, options: Options) -> Switched | NothingToDo:
    """Carry an order out up to the switch, and give it to the judge.

    The caller holds the host's lock and has settled any earlier record. Raises Refused (nothing
    was changed), or Failed when it went wrong before the judge took over; then everything is
    as it was.
    """
    with candidacy(host, given, options) as ready:
        if isinstance(ready, NothingToDo):
            return ready
        inspected = ready.candidate.inspect()
        release = ReleaseId(version="", digest=inspected.content_digest.hex)
        record = host.put(_intent(host, ready.plan, ready.order, options, release))
        with _undone_on_failure(host):
            seal, before = _stage(host, ready, options, in_mirrors=True)
            record = msgspec.structs.replace(
                record,
                candidate=ReleaseId(version=seal.version, digest=seal.sha256.hex),
                source_digest=inspected.source_digest.hex,
                self_test_before=before,
            )
            return _switch(host, record)


def roll_back(host: Host, options: Options) -> Switched | NothingToDo:
    """Switch back to the last good release on an operator's order; recorded and judged alike."""
    plan = plan_rollback(host.agent, observe(host))
    if isinstance(plan, NothingToDo):
        return plan
    content = host.agent.layout.slot(plan.target)
    if not slots.intact(host.agent.layout, content):
        raise Refused(
            Reason.NO_LAST_GOOD,
            f"the content of {content} no longer has the digest that its seal states",
            remedy="upgrade to the release you want with `hostsync upgrade PATH`",
        )
    seal = slots.observe(host.agent.layout, content).seal
    if seal is None:
        raise Failed(f"{content} lost its seal")
    release = ReleaseId(version=seal.version, digest=seal.sha256.hex)
    record = host.put(_intent(host, plan, new_order(), options, release))
    with _undone_on_failure(host):
        before = self_tests(host, workers(host, options))
        return _switch(host, msgspec.structs.replace(record, self_test_before=before))


def _stage(
    host: Host, ready: Ready, options: Options, *, in_mirrors: bool
) -> tuple[Seal, dict[str, int]]:
    current = ready.plan.previous_seal.version
    return stage_and_verify(
        host, ready.candidate, ready.staging, options, current=current, in_mirrors=in_mirrors
    )


def _intent(host: Host, plan: Plan, order: str, options: Options, release: ReleaseId) -> Record:
    now = host.clock.wall()
    return Record(
        order=order,
        agent=host.agent.name,
        source=options.source,
        candidate=release,
        previous=ReleaseId(
            version=plan.previous_seal.version, digest=plan.previous_seal.sha256.hex
        ),
        previous_slot=plan.previous,
        target_slot=plan.target,
        last_good_slot=plan.last_good,
        evicts=plan.evicts,
        staged=plan.staged,
        restart=plan.restart,
        best_effort=options.best_effort,
        phase=Phase.STAGING,
        created_at=now,
        updated_at=now,
    )


@contextmanager
def _undone_on_failure(host: Host) -> Iterator[None]:
    """Take everything back when an order ends before the judge has it, then go on raising."""
    try:
        yield
    except BaseException as error:
        record = host.record.load()
        if record is not None:
            interrupted = not isinstance(error, HostsyncError)
            outcome = Outcome.INTERRUPTED if interrupted else Outcome.FAILED
            undo(host, record, outcome, str(error) or type(error).__name__)
        raise


def _switch(host: Host, record: Record) -> Switched:
    layout, fs = host.agent.layout, host.fs
    record = host.put(_at(host, record, Phase.SWITCHING))
    host.event("switch", "started", str(layout.root), record.candidate.version)
    _write_missing_assets(host, record)
    target = layout.slot(record.target_slot)
    if record.staged:
        if record.evicts:
            slots.evict(fs, layout, target, layout.evicted(record.order))
        slots.install(fs, layout, layout.staging(record.order), target)
    _mirror(host, record)
    point(host, record.previous_slot, links_of="last-good")
    point(host, record.target_slot, links_of="current")
    _mirror(host, record)
    record = host.put(_at(host, record, Phase.SWITCHED))
    host.event("switch", "complete", str(layout.current), record.candidate.version)
    trouble = hand_to_judge(host)
    if trouble:
        raise Failed(
            f"the judge {JUDGE_UNIT} did not start: {trouble}",
            remedy=f"see `journalctl -u {JUDGE_UNIT}`; the switch was taken back",
        )
    return Switched(order=record.order, version=record.candidate.version)


def _write_missing_assets(host: Host, record: Record) -> None:
    """Bring back service assets of the release in use that somebody removed; change no other.

    A roll back runs through them, so they must be there before the switch.
    """
    if host.agent.owns_assets:
        release = host.agent.layout.slot(record.previous_slot)
        wanted = assets.of_release(host.config, host.agent, release)
        if assets.converge(host.fs, wanted, missing_only=True):
            host.units.reload()


def _mirror(host: Host, record: Record) -> None:
    problems = mirror_all(host)
    if problems and not record.best_effort:
        raise MachineError(problems[0], remedy="the switch was taken back")


def _at(host: Host, record: Record, phase: Phase) -> Record:
    return msgspec.structs.replace(record, phase=phase, updated_at=host.clock.wall())
