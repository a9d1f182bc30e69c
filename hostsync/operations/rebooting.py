"""NodeReboot: the worker machine stops, is forgotten by machined, starts, and is in step again.

A restart of `systemd-nspawn@NAME.service` in one go fails every other time, because machined still
knows the machine that went; so each half is awaited (systemd issues 13766 and 24045).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hostsync import lock
from hostsync.activation.host import Host
from hostsync.activation.orders import settle_all
from hostsync.activation.service import run_job
from hostsync.errors import Failed, HostsyncError, MachineError, UnitsError
from hostsync.operations.demand import Reboot, Say
from hostsync.operations.operation import Operation
from hostsync.operations.reboots import Restart, Restarts
from hostsync.ports import UnitVerb, Worker
from hostsync.redaction import plain
from hostsync.sync import converge_rootfs, synchronise

STOP_SECONDS = 120.0
FORGET_SECONDS = 60.0
START_SECONDS = 120.0
READY_SECONDS = 180.0
TICK_SECONDS = 0.5
ASK_SECONDS = 20.0


def reboot(
    hosts: Sequence[Host], restarts: Restarts, operation: Operation, demand: Reboot, say: Say
) -> None:
    """Restart the machine that is meant; its end is in the journal with the operation's uid.

    One that was begun before is gone on with. Raises Busy when the host has another order in
    hand, and DiskError when the journal cannot be written; then nothing was begun. Raises
    UnitsError when systemd cannot be asked: to be gone on with, for the machine may be stopped.
    """
    host = hosts[0]
    with lock.held(host.config.run_root, f"operation {operation.name}"):
        settle_all(hosts)
        known = restarts.find(operation.uid)
        try:
            begun = known or restarts.store(_intent(host, operation, demand))
        except MachineError as error:
            begun = restarts.store(_refused(host, operation, str(error)))
        if begun.ended_at is not None:
            return
        trouble = ""
        try:
            _restart(hosts, begun, say)
        except UnitsError:
            raise
        except HostsyncError as error:
            trouble = str(error)
        ended = msgspec.structs.replace(begun, ended_at=host.clock.wall(), trouble=plain(trouble))
        restarts.store(ended)
        host.event(
            "restart", "failed" if trouble else "complete", f"machine {begun.machine}", trouble
        )


def unit_of(machine: str) -> str:
    """The unit that runs a machine."""
    return f"systemd-nspawn@{machine}.service"


def _intent(host: Host, operation: Operation, demand: Reboot) -> Restart:
    machine = demand.machine or _only_one(host)
    return Restart(
        uid=operation.uid,
        operation=operation.name,
        machine=machine,
        before=host.units.state(unit_of(machine)).invocation,
        started_at=host.clock.wall(),
    )


def _refused(host: Host, operation: Operation, trouble: str) -> Restart:
    now = host.clock.wall()
    return Restart(
        uid=operation.uid, operation=operation.name, machine="", before="",
        started_at=now, ended_at=now, trouble=plain(trouble),
    )  # fmt: skip


def _only_one(host: Host) -> str:
    names = [worker.name for worker in host.machines.running()]
    if len(names) == 1:
        return names[0]
    found = f"{', '.join(names)} run" if names else "none runs"
    raise MachineError(
        f"which worker machine to restart is not clear: {found}",
        remedy="name it in the operation's parameter `machine`",
    )


def _restart(hosts: Sequence[Host], begun: Restart, say: Say) -> None:
    host, unit = hosts[0], unit_of(begun.machine)
    state = host.units.state(unit)
    if state.load != "loaded":
        raise MachineError(f"machine {begun.machine} is not run by {unit} on this host")
    if state.invocation == begun.before:
        say(f"stopping machine {begun.machine}")
        host.event("restart", "started", f"machine {begun.machine}")
        _job(host, UnitVerb.STOP, unit, STOP_SECONDS)
    if host.units.state(unit).active not in ("active", "activating"):
        if not _comes(host, FORGET_SECONDS, lambda: _is_forgotten(host, begun.machine)):
            # A start that may fail is better than a node that stays stopped.
            still = f"machined still lists it {FORGET_SECONDS:g} s after it stopped"
            host.event("restart", "failed", f"machine {begun.machine}", still)
        _prepare(hosts, begun.machine)
        say(f"starting machine {begun.machine}")
        host.units.reset_failed(unit)
        _job(host, UnitVerb.START, unit, START_SECONDS)
    say(f"waiting for machine {begun.machine} to be ready")
    if not _comes(host, READY_SECONDS, lambda: _is_up(host, begun.machine)):
        did_not = f"started and did not become ready within {READY_SECONDS:g} s"
        raise MachineError(f"machine {begun.machine} {did_not}")
    worker = _find(host, begun.machine)
    if worker is None:
        raise MachineError(f"machine {begun.machine} went again right after its start")
    say(f"bringing machine {begun.machine} in step")
    for each in hosts:
        report = synchronise(each.machines, each.agent, worker, deep=True)
        if report.problem:
            raise MachineError(report.problem, remedy="run `hostsync sync`")


def _prepare(hosts: Sequence[Host], machine: str) -> None:
    """What the unit's own preparation leaves out while somebody holds the lock, as we do."""
    for host in hosts:
        rootfs = host.config.machines.root / machine
        try:
            converge_rootfs(host.machines, host.agent, rootfs, deep=True)
        except HostsyncError as error:
            host.event("sync", "failed", f"machine {machine}", str(error))


def _job(host: Host, verb: UnitVerb, unit: str, seconds: float) -> None:
    result = run_job(host, verb, unit, seconds)
    if result != "done":
        raise Failed(
            f"systemd's {verb} of {unit} ended as {result!r}", remedy=f"see `journalctl -u {unit}`"
        )


def _comes(host: Host, seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait for a condition, and say whether it came within that time."""
    deadline = host.clock.monotonic() + seconds
    while not condition():
        if host.clock.monotonic() >= deadline:
            return False
        host.clock.sleep(TICK_SECONDS)
    return True


def _find(host: Host, name: str) -> Worker | None:
    return next((each for each in host.machines.running() if each.name == name), None)


def _is_forgotten(host: Host, name: str) -> bool:
    """Whether machined lists it no more; one that cannot be asked just now is asked again."""
    try:
        return _find(host, name) is None
    except MachineError:
        return False


def _is_up(host: Host, name: str) -> bool:
    """Whether the machine's own systemd has started what it starts; failed units do not matter."""
    try:
        worker = _find(host, name)
        if worker is None:
            return False
        argv = ("/usr/bin/systemctl", "is-system-running")
        said = host.machines.run(worker, argv, ASK_SECONDS).stdout.strip()
    except MachineError:
        return False
    return said in ("running", "degraded")
