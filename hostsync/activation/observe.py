"""Looks at the host and returns facts: what plan and recovery decide upon. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from hostsync import links, slots
from hostsync.activation.facts import MachineFacts, Observed
from hostsync.activation.host import Host
from hostsync.errors import MachineError
from hostsync.model import SlotName
from hostsync.ports import Worker


def observe(host: Host) -> Observed:
    """Everything a plan depends on, at this instant. Raises UnitsError."""
    layout = host.agent.layout
    workers: tuple[Worker, ...] = ()
    problem = ""
    try:
        workers = host.machines.running()
    except MachineError as error:
        problem = str(error)
    return Observed(
        space=host.probe.space(layout.root),
        slots={name: slots.observe(layout, layout.slot(name)) for name in SlotName},
        runnable=frozenset(name for name, can in runnable(host).items() if can),
        current=links.observe(layout, layout.current),
        last_good=links.observe(layout, layout.last_good),
        commands=tuple(links.observe(layout, c.path) for c in host.agent.commands if c.on_host),
        unit=host.units.state(host.agent.unit),
        machines=tuple(_machine(host, worker) for worker in workers),
        machines_problem=problem,
        known_bad={bad.digest: bad.reason for bad in host.state.known_bad()},
    )


def runnable(host: Host) -> Mapping[SlotName, bool]:
    """Which slots hold a sealed release whose entry can be executed."""
    layout = host.agent.layout
    return {name: slots.runnable(layout, layout.slot(name)) for name in SlotName}


def _machine(host: Host, worker: Worker) -> MachineFacts:
    if worker.rootfs is None:
        problem = "" if worker.bindable else f"machine {worker.name}: {worker.why_not}"
        return MachineFacts(name=worker.name, free=None, problem=problem)
    try:
        space = host.machines.space(worker.rootfs)
        return MachineFacts(name=worker.name, free=space.free, device=space.device)
    except MachineError as error:
        return MachineFacts(name=worker.name, free=None, problem=str(error))
