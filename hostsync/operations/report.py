"""What is said of an operation, and the status documents that say it: pure.

Two shapes: an operation that names this machine is reported on as a whole (a merge patch of its
status); of one that selects machines only this machine's entry is ever written (server-side
apply), so that no node claims what others have yet to do.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hostsync.operations.operation import (
    API_VERSION,
    KIND,
    TERMINAL,
    Condition,
    Operation,
    Phase,
    rfc3339,
)
from hostsync.redaction import plain, redact
from hostsync.state import HistoryLine, Outcome

COMPLETED = "Completed"
"""The type of the one condition that agents keep."""
MESSAGE_LIMIT = 1024

Json = dict[str, object]


class Cause(StrEnum):
    """The reasons that a condition gives."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    INVALID_PARAMETERS = "InvalidParameters"
    EXECUTION_FAILED = "ExecutionFailed"
    DAEMON_FAILED = "DaemonFailed"
    UNSUPPORTED_OPERATION = "UnsupportedOperation"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation's status is to say."""

    phase: Phase
    cause: Cause
    message: str

    @property
    def is_final(self) -> bool:
        """Whether the phase is terminal."""
        return self.phase in TERMINAL


def pending(message: str) -> Report:
    """It waits, and for what."""
    return Report(phase=Phase.PENDING, cause=Cause.PENDING, message=message)


def under_way(message: str) -> Report:
    """It is being carried out, and how far it has come."""
    return Report(phase=Phase.IN_PROGRESS, cause=Cause.IN_PROGRESS, message=message)


def succeeded(message: str) -> Report:
    """It is done."""
    return Report(phase=Phase.COMPLETE, cause=Cause.SUCCEEDED, message=message)


def failed(cause: Cause, message: str) -> Report:
    """It is over and did not succeed."""
    return Report(phase=Phase.FAILED, cause=cause, message=message)


def of_history(line: HistoryLine) -> Report:
    """What the end of an order means for the operation that it came from."""
    match line.outcome:
        case Outcome.COMPLETE:
            return succeeded(line.reason or f"{line.agent} {line.version} is in use")
        case Outcome.ROLLED_BACK:
            told = f"{line.agent} {line.version} failed and {line.previous_version} was restored"
            return failed(Cause.DAEMON_FAILED, f"{told}: {line.reason}")
        case Outcome.NOT_RESTORED:
            told = f"{line.agent} {line.version} failed and the release before it was NOT restored"
            return failed(Cause.DAEMON_FAILED, f"{told}; a person is needed: {line.reason}")
        case Outcome.FAILED | Outcome.INTERRUPTED:
            return failed(Cause.EXECUTION_FAILED, f"nothing was switched: {line.reason}")


def is_told(operation: Operation, report: Report, machine: str) -> bool:
    """Whether the operation's status says this already."""
    wanted = shown(report.message)
    if not operation.machine:
        entry = operation.target(machine)
        return entry is not None and (entry.phase, entry.message) == (report.phase, wanted)
    condition = _condition(operation)
    said = (operation.phase, operation.message, condition.reason if condition else "")
    return said == (report.phase, wanted, report.cause)


def status_patch(operation: Operation, report: Report, now: float) -> Json:
    """The merge patch of the status, valid only for this object as it was seen.

    `now` in seconds since the epoch. The resourceVersion makes the server refuse it after any
    change in between, and for an object that was made anew under the same name: of a status the
    uid alone is no guard, for the server takes it from the object that is there.
    """
    message, stamp = shown(report.message), rfc3339(now)
    status: Json = {
        "phase": str(report.phase),
        "message": message,
        "conditions": [*_others(operation), _completed(operation, report, stamp)],
    }
    if report.phase is not Phase.PENDING and not operation.started:
        status["startedAt"] = stamp
    if report.is_final:
        status["completedAt"] = stamp
    return {
        "metadata": {"uid": operation.uid, "resourceVersion": operation.version},
        "status": status,
    }


def entry_patch(operation: Operation, report: Report, machine: str, now: float) -> Json:
    """What this machine applies to the status of an operation that selects it: its entry alone.

    Valid only for this object as it was seen, as the patch of a whole status is.
    """
    before = operation.target(machine)
    entry: Json = {
        "machineRef": machine,
        "phase": str(report.phase),
        "message": shown(report.message),
        "observedGeneration": operation.generation,
    }
    stamp = rfc3339(now)
    if report.phase is not Phase.PENDING:
        entry["startedAt"] = (before.startedAt if before else "") or stamp
    if report.is_final:
        entry["completedAt"] = stamp
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": operation.name,
            "uid": operation.uid,
            "resourceVersion": operation.version,
        },
        "status": {"targets": [entry]},
    }


def shown(message: str) -> str:
    """A message as it may stand in an object that many can read."""
    text = plain(redact(message)).replace("\n", " ")
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def _condition(operation: Operation) -> Condition | None:
    return next((each for each in operation.conditions if each.type == COMPLETED), None)


def _others(operation: Operation) -> list[Json]:
    # A merge patch replaces a list as a whole, so what others said is said again.
    return [
        {name: getattr(each, name) for name in each.__struct_fields__}
        for each in operation.conditions
        if each.type != COMPLETED
    ]


def _completed(operation: Operation, report: Report, stamp: str) -> Json:
    status = "True" if report.phase is Phase.COMPLETE else "False"
    before = _condition(operation)
    same = before is not None and before.status == status and before.lastTransitionTime
    return {
        "type": COMPLETED,
        "status": status,
        "reason": str(report.cause),
        "message": shown(report.message),
        "lastTransitionTime": before.lastTransitionTime if before and same else stamp,
        "observedGeneration": operation.generation,
    }
