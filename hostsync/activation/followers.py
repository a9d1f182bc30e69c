"""Whether every machine followed a switch: looked at more than once, and blamed on the right one.

A machine that is powered off, boots, or whose machined restarts is no fault of a release; a
token endpoint that went down during the trial is none either. Only a self-test that fails with
the candidate and succeeds with the release before it speaks against the candidate.
"""

from __future__ import annotations

import msgspec

from hostsync.activation import verify
from hostsync.activation.host import Host
from hostsync.activation.restore import mirror_all
from hostsync.errors import MachineError
from hostsync.ports import Worker
from hostsync.record import Record
from hostsync.sync import synchronise

PATIENCE_SECONDS = 30.0
"""How long machines may take to follow once the service is judged good."""
PAUSE_SECONDS = 1.0


class Shortfall(msgspec.Struct, frozen=True):
    """What is not as it should be; `blames_release` when the candidate is known to be the cause."""

    reason: str
    blames_release: bool = False


def await_followers(host: Host, record: Record) -> Shortfall | None:
    """Bring machines in step, looking again for a while; what is left to complain of."""
    if record.best_effort:
        mirror_all(host)
        return None
    deadline = host.clock.monotonic() + PATIENCE_SECONDS
    while True:
        found = _shortfall(host, record)
        if found is None or found.blames_release or host.clock.monotonic() >= deadline:
            return found
        host.clock.sleep(PAUSE_SECONDS)


def _shortfall(host: Host, record: Record) -> Shortfall | None:
    try:
        for worker in host.machines.running():
            report = synchronise(host.machines, host.agent, worker)
            if report.problem:
                return Shortfall(report.problem)
            failed = _failed_self_test(host, record, worker)
            if failed is not None:
                return failed
    except MachineError as error:
        return Shortfall(str(error))
    return None


def _failed_self_test(host: Host, record: Record, worker: Worker) -> Shortfall | None:
    if not host.agent.self_test or record.self_test_before.get(worker.name) != 0:
        return None
    layout = host.agent.layout
    after = verify.self_test(host, worker, layout.slot(record.target_slot))
    if after == 0:
        return None
    text = f"the credential self-test in machine {worker.name} ended with status {after}"
    if after == verify.NOT_RUN:
        return Shortfall(text)
    if verify.self_test(host, worker, layout.slot(record.previous_slot)) != 0:
        host.event("self-test", "failed", f"machine {worker.name}", "with either release")
        return None
    return Shortfall(f"{text}; that of the release before succeeds there", blames_release=True)
