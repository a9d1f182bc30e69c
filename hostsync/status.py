"""The truth about a host, gathered for people and for machines. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from hostsync import credential, links, sharing, slots, sync
from hostsync.activation.host import Host
from hostsync.errors import ExitCode, HostsyncError
from hostsync.model import SlotName
from hostsync.ports import Worker
from hostsync.record import Record
from hostsync.state import HistoryLine

T = TypeVar("T")


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One slot: its condition, and the release that its seal names."""

    name: SlotName
    condition: str
    version: str = ""
    digest: str = ""
    detail: str = ""


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One running machine: the way it sees the slot root and the release it finds there.

    `credential` says how it has the credential that the host shares; empty when none is.
    """

    name: str
    view: str
    release: str
    mirrored: bool
    in_step: bool
    problem: str = ""
    note: str = ""
    credential: str = ""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One managed agent on this host."""

    agent: str
    slot_root: str
    current: SlotName | None
    last_good: SlotName | None
    slots: list[SlotStatus]
    unit: str
    active: str
    in_flight: Record | None
    last_order: HistoryLine | None
    machines: list[MachineStatus]
    problems: list[str]

    @property
    def exit_code(self) -> ExitCode:
        """0 when all is in step, 7 while an order is in flight, 1 for trouble."""
        if self.in_flight is not None:
            return ExitCode.IN_PROGRESS
        return ExitCode.FAILED if self.problems else ExitCode.DONE


def gather(host: Host) -> AgentStatus:
    """Look at everything; what cannot be looked at becomes a problem, never an exception."""
    layout = host.agent.layout
    problems: list[str] = []
    current = links.observe(layout, layout.current).slot
    if current is None:
        problems.append(f"{host.agent.name} is not installed in {layout.root}")
    elif not slots.runnable(layout, layout.slot(current)):
        problems.append(f"{layout.slot(current)} holds no sealed, executable release")
    record = _tried(host.record.load, problems)
    last = _tried(host.state.history, problems) or ()
    unit = _tried(lambda: host.units.state(host.agent.unit), problems)
    active = "unknown" if unit is None else unit.active
    if current is not None and active != "active":
        problems.append(f"{host.agent.unit} is {active}")
    machines = _machines(host, problems) if current is not None else []
    if current is not None and host.agent.owns_assets:
        _check_source(host, problems)
    return AgentStatus(
        agent=host.agent.name,
        slot_root=str(layout.root),
        current=current,
        last_good=links.observe(layout, layout.last_good).slot,
        slots=[_slot(host, name) for name in SlotName],
        unit=host.agent.unit,
        active=active,
        in_flight=record,
        last_order=last[-1] if last else None,
        machines=machines,
        problems=problems,
    )


def _tried(look: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return look()
    except HostsyncError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"cannot read {error.filename}: {error.strerror}; run as root")
    return None


def _slot(host: Host, name: SlotName) -> SlotStatus:
    layout = host.agent.layout
    facts = slots.observe(layout, layout.slot(name))
    return SlotStatus(
        name=name,
        condition=str(facts.condition),
        version=facts.seal.version if facts.seal else "",
        digest=facts.seal.sha256.hex if facts.seal else "",
        detail=facts.detail,
    )


def _machines(host: Host, problems: list[str]) -> list[MachineStatus]:
    workers = _tried(host.machines.running, problems) or ()
    reports = [sync.inspect(host.machines, host.agent, worker) for worker in workers]
    problems += [report.problem for report in reports if report.problem]
    shared = [_shared(host, worker, problems) for worker in workers]
    return [
        MachineStatus(
            name=report.name,
            view=str(report.view),
            release=report.release,
            mirrored=report.mirrored,
            in_step=report.in_step,
            problem=report.problem,
            note=report.note,
            credential=words,
        )
        for report, words in zip(reports, shared, strict=True)
    ]


def _shared(host: Host, worker: Worker, problems: list[str]) -> str:
    """How a machine has the credential; the plugin that reads it comes with hostsync's agent."""
    if not host.agent.owns_assets:
        return ""
    found = sharing.look(host.machines, sharing.Share.of(host.config), worker)
    problems += [found.problem] if found.problem else []
    return found.words


def _check_source(host: Host, problems: list[str]) -> None:
    """Whether what machines are given is what the operator's file says."""
    config = host.config
    wanted = _tried(lambda: credential.read(config.credential_file), problems)
    there = _tried(lambda: credential.laid_out(config.credential_root), problems)
    if wanted is None:
        problems[-1] += "; machines keep the last version that could be used"
    elif wanted != (there or {}):
        problems.append(
            f"machines do not have what {config.credential_file} says yet; `hostsync sync` does it"
        )
