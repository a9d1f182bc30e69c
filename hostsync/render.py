"""From values to text and JSON: pure, nothing is looked at here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from hostsync.activation.host import Event
from hostsync.activation.plan import NothingToDo, Plan
from hostsync.errors import HostsyncError, Refused
from hostsync.redaction import plain
from hostsync.state import HistoryLine
from hostsync.status import AgentStatus


def to_json(value: object) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value).decode()


def error_line(error: HostsyncError) -> str:
    """An error as one line for people."""
    return f"hostsync: {_line(str(error))}"


def event_line(event: Event) -> str:
    """An event as a line for people: time of day, what, on what."""
    at = _when(event.at, "%H:%M:%S.%f")[:-3]
    words = [event.act] if event.stage == "complete" else [event.act, event.stage]
    return "  ".join(filter(None, (at, " ".join(words), event.object, _line(event.detail))))


def error_value(error: HostsyncError) -> dict[str, object]:
    """An error as data: code, exit status, brief, remedy, and the reason of a refusal."""
    value: dict[str, object] = {
        "code": error.code,
        "exit": int(error.exit_code),
        "message": plain(error.brief),
        "remedy": plain(error.remedy),
    }
    if isinstance(error, Refused):
        value["reason"] = str(error.reason)
    return value


def plan_text(plan: Plan | NothingToDo) -> str:
    """What an order would do, step by step."""
    if isinstance(plan, NothingToDo):
        return f"nothing to do: {plan.why}"
    lines = [f"{number:>3}  {_line(step.describe())}" for number, step in enumerate(plan.steps, 1)]
    return "\n".join(["every check passed; an upgrade would do this:", *lines])


def plan_value(plan: Plan | NothingToDo) -> dict[str, object]:
    """The same as data."""
    if isinstance(plan, NothingToDo):
        return {"nothing_to_do": plan.why, "steps": []}
    return {
        "target": plan.target,
        "previous": plan.previous_seal.version,
        "steps": [
            {"act": s.act, "object": plain(s.object), "detail": s.detail} for s in plan.steps
        ],
    }


def status_text(status: AgentStatus) -> str:
    """The state of one agent for people."""
    lines = [f"{status.agent}  {status.unit} is {status.active}"]
    for slot in status.slots:
        marks = [name for name, at in _marks(status) if at == slot.name]
        release = f"{slot.version} ({slot.digest[:12]})" if slot.version else slot.condition
        lines.append("  ".join(filter(None, (f"  {slot.name:<6} {release}", ", ".join(marks)))))
    for machine in status.machines:
        step = "in step" if machine.in_step else "NOT in step"
        step += f", credential {machine.credential}" if machine.credential else ""
        seen = f"sees {machine.release or 'no release'} by {machine.view}"
        lines.append(
            "  ".join(filter(None, (f"  {machine.name:<6} {seen}, {step}", _line(machine.note))))
        )
    if status.in_flight is not None:
        record = status.in_flight
        lines.append(f"  order {record.order}: {record.candidate.version}, {record.phase}")
    if status.last_order is not None:
        lines.append(f"  last order {history_text(status.last_order)}")
    lines += [f"  problem: {_line(problem)}" for problem in status.problems]
    return "\n".join(lines)


def history_text(line: HistoryLine) -> str:
    """One ended order in a line."""
    ended = _when(line.ended_at, "%Y-%m-%dT%H:%M:%SZ")
    change = f"{line.previous_version} -> {line.version or line.digest[:12]}"
    took = f"{line.ended_at - line.started_at:.1f} s"
    return "  ".join(
        filter(None, (ended, line.order, change, str(line.outcome), took, _line(line.reason)))
    )


def verdict_text(line: HistoryLine) -> str:
    """How an order ended, in a sentence."""
    reason = _line(line.reason)
    match line.outcome:
        case "complete":
            return f"{line.agent} {line.version} is current, judged good"
        case "rolled-back":
            return (
                f"{line.agent} {line.version} was judged bad: {reason}; "
                f"{line.previous_version} runs again"
            )
        case "not-restored":
            return f"{line.agent} {line.version} was judged bad, NOT restored: {reason}"
        case _:
            return f"order {line.order} ended {line.outcome}: {reason}"


def evidence_text(evidence: Sequence[str]) -> str:
    """The last words of a release that failed, indented."""
    return "\n".join(f"    {_line(line)}" for line in evidence)


def _line(text: str) -> str:
    """One line whatever somebody else's words hold, so that no line can be forged."""
    return plain(text).replace("\n", "\\n")


def _when(at: float, form: str) -> str:
    """A time for people; one that a damaged file made impossible is shown as the epoch."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC).strftime(form)


def _marks(status: AgentStatus) -> tuple[tuple[str, object], ...]:
    return (("current", status.current), ("last-good", status.last_good))
