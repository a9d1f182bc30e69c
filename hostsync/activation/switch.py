"""An order from its first check to the judge's hands: stage, verify, switch, hand over."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hostsync import slots
from hostsync.activation import verify
from hostsync.activation.host import Host
from hostsync.activation.observe import observe
from hostsync.activation.plan import NothingToDo, Plan, Wish, plan_rollback, plan_upgrade
from hostsync.activation.restore import mirror_all, point, undo
from hostsync.activation.service import JUDGE_UNIT, run_job
from hostsync.errors import Failed, HostsyncError, MachineError, Reason, Refused
from hostsync.layout import TRASH_PREFIX
from hostsync.model import Seal
from hostsync.ports import UnitVerb, View, Worker
from hostsync.record import Phase, Record, ReleaseId, Source
from hostsync.release import Candidate, open_candidate
from hostsync.state import Outcome
from hostsync.sync import converge_rootfs

JUDGE_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an order may ask beside the release."""

    allow_known_bad: bool = False
    best_effort: bool = False
    source: Source = field(default_factory=Source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """The candidate is current and the judge has the order."""

    order: str
    version: str


def preflight(host: Host, path: Path, options: Options) -> Plan | NothingToDo:
    """Run every check that can block an upgrade, the candidate's `version` included.

    Changes nothing that lasts: the candidate is staged beside the slots, asked, and removed.
    Raises what `upgrade` would raise.
    """
    with _open(host, path) as candidate:
        plan = _plan(host, candidate, path, options)
        if isinstance(plan, Plan):
            order = _new_order()
            staging = host.agent.layout.staging(order)
            try:
                _stage_and_verify(host, candidate, staging, options, in_mirrors=False)
            finally:
                slots.discard(host.fs, host.agent.layout, staging, order)
                host.fs.sweep(host.agent.layout.root, TRASH_PREFIX)
                _clear_mirrors(host)
        return plan


def upgrade(host: Host, path: Path, options: Options) -> Switched | NothingToDo:
    """Carry an order out up to the switch, and give it to the judge.

    The caller holds the host's lock and has settled any earlier record. Raises Refused (nothing
    was changed), or Failed when it went wrong before the judge took over; then everything is
    as it was.
    """
    with _open(host, path) as candidate:
        plan = _plan(host, candidate, path, options)
        if isinstance(plan, NothingToDo):
            return plan
        order = _new_order()
        record = host.put(_intent(host, plan, order, options, _release_id(candidate)))
        with _undone_on_failure(host):
            staging = host.agent.layout.staging(order)
            seal, before = _stage_and_verify(host, candidate, staging, options, in_mirrors=True)
            record = msgspec.structs.replace(
                record,
                candidate=ReleaseId(version=seal.version, digest=seal.sha256.hex),
                source_digest=candidate.inspected.source_digest.hex,
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
    record = host.put(_intent(host, plan, _new_order(), options, release))
    with _undone_on_failure(host):
        before = _self_tests(host, _workers(host, options))
        return _switch(host, msgspec.structs.replace(record, self_test_before=before))


@contextmanager
def _open(host: Host, path: Path) -> Iterator[Candidate]:
    layout = host.agent.layout
    with open_candidate(path, agent=host.agent.name, kind=layout.kind) as candidate:
        yield candidate


def _plan(host: Host, candidate: Candidate, path: Path, options: Options) -> Plan | NothingToDo:
    if host.units.state(JUDGE_UNIT).load != "loaded":
        raise Refused(
            Reason.NOT_INSTALLED,
            f"{JUDGE_UNIT} is not installed on this host, so nothing could roll back",
            remedy="run `hostsync install` first",
        )
    wish = Wish(
        digest=candidate.inspected.content_digest,
        size=candidate.inspected.size,
        label=str(path),
        allow_known_bad=options.allow_known_bad,
        best_effort=options.best_effort,
    )
    return plan_upgrade(host.agent, observe(host), wish, reserve=host.config.reserve_bytes)


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


def _stage_and_verify(
    host: Host, candidate: Candidate, staging: Path, options: Options, *, in_mirrors: bool
) -> tuple[Seal, dict[str, int]]:
    """Write, ask, seal, and ask again inside the machines.

    Returns the seal and the exit status of the *current* release's self-test per machine.
    """
    inspected = candidate.inspected
    host.event("stage", "started", str(staging), f"{inspected.size >> 20} MiB")
    candidate.stage(staging, host.fs)
    host.event("stage", "complete", str(staging), inspected.content_digest.short)
    answer = verify.on_host(host, staging)
    host.event("verify", "complete", "on the host", answer.version)
    seal = Seal(
        agent=host.agent.name,
        version=answer.version,
        sha256=inspected.content_digest,
        protocol=answer.protocol,
    )
    host.fs.write(host.agent.layout.seal(staging), seal.to_bytes(), 0o644)
    workers = _workers(host, options)
    before = _self_tests(host, workers)
    for worker in workers:
        with _forgiven(host, worker, best_effort=options.best_effort):
            if worker.rootfs is not None and (in_mirrors or not _is_bound(host, worker)):
                converge_rootfs(host.machines, host.agent, worker.rootfs)
                host.event("mirror", "complete", f"machine {worker.name}", "staged release")
            verify.in_machine(host, worker, staging, answer)
            _compare_self_test(host, worker, staging, before)
            host.event("verify", "complete", f"in machine {worker.name}", answer.version)
    return seal, before


def _switch(host: Host, record: Record) -> Switched:
    layout, fs = host.agent.layout, host.fs
    record = host.put(_at(host, record, Phase.SWITCHING))
    host.event("switch", "started", str(layout.root), record.candidate.version)
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
    result = run_job(host, UnitVerb.START, JUDGE_UNIT, JUDGE_START_SECONDS)
    if result != "done":
        raise Failed(
            f"the judge {JUDGE_UNIT} did not start (its job ended as {result!r})",
            remedy=f"see `journalctl -u {JUDGE_UNIT}`; the switch was taken back",
        )
    return Switched(order=record.order, version=record.candidate.version)


def _is_bound(host: Host, worker: Worker) -> bool:
    return host.machines.see(worker, host.agent.layout.root).view is View.BIND


def _clear_mirrors(host: Host) -> None:
    """Take the staged candidate out of the mirrors that had to have it to be asked."""
    with suppress(MachineError):
        for worker in host.machines.running():
            if worker.rootfs is not None and not _is_bound(host, worker):
                converge_rootfs(host.machines, host.agent, worker.rootfs)


def _mirror(host: Host, record: Record) -> None:
    problems = mirror_all(host)
    if problems and not record.best_effort:
        raise MachineError(problems[0], remedy="the switch was taken back")


def _at(host: Host, record: Record, phase: Phase) -> Record:
    return msgspec.structs.replace(record, phase=phase, updated_at=host.clock.wall())


def _workers(host: Host, options: Options) -> tuple[Worker, ...]:
    try:
        return host.machines.running()
    except MachineError:
        if options.best_effort:
            return ()
        raise


def _self_tests(host: Host, workers: tuple[Worker, ...]) -> dict[str, int]:
    if not host.agent.self_test:
        return {}
    current = host.agent.layout.current
    return {worker.name: verify.self_test(host, worker, current) for worker in workers}


def _compare_self_test(host: Host, worker: Worker, content: Path, before: dict[str, int]) -> None:
    if not host.agent.self_test or before.get(worker.name) != 0:
        return
    after = verify.self_test(host, worker, content)
    if verify.is_worse(0, after):
        raise Refused(
            Reason.CANDIDATE_FAILS,
            f"the candidate's credential self-test in machine {worker.name} ended with status "
            f"{after}; the current release's succeeds there",
            remedy="nothing was switched; order a release whose self-test succeeds",
        )


@contextmanager
def _forgiven(host: Host, worker: Worker, *, best_effort: bool) -> Iterator[None]:
    try:
        yield
    except HostsyncError as error:
        if not best_effort:
            raise
        host.event("verify", "failed", f"machine {worker.name}", f"{error} (best effort)")


def _release_id(candidate: Candidate) -> ReleaseId:
    return ReleaseId(version="", digest=candidate.inspected.content_digest.hex)


def _new_order() -> str:
    return secrets.token_hex(4)
