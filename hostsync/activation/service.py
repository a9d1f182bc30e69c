"""The agent's service and its jobs: queued, awaited by events, bounded by deadlines."""

from __future__ import annotations

from pathlib import Path

from hostsync.activation.host import Host
from hostsync.activation.judge import Bad, Good, Sample, Undecided, Verdict, Watch, judge
from hostsync.errors import UnitsError
from hostsync.model import SlotName
from hostsync.ports import UnitVerb
from hostsync.slots import read_small

JUDGE_UNIT = "hostsync-judge.service"
JUDGE_START_SECONDS = 30.0
LONGEST_WAIT = 1.0
"""Seconds between looks at a service even when no event came."""


def run_job(host: Host, verb: UnitVerb, unit: str, timeout: float) -> str:
    """Queue a job and return its result, or `timeout` when it took longer than that."""
    job = host.units.queue(verb, unit)
    deadline = host.clock.monotonic() + timeout
    while (result := host.units.job_result(job)) is None:
        remaining = deadline - host.clock.monotonic()
        if remaining <= 0:
            return "timeout"
        host.units.wait(min(remaining, LONGEST_WAIT))
    return result


def stop(host: Host) -> None:
    """Stop the agent: politely for `stop_seconds`, then by SIGKILL to all its processes."""
    unit, grace = host.agent.unit, host.agent.health.stop_seconds
    job = host.units.queue(UnitVerb.STOP, unit)
    deadline = host.clock.monotonic() + grace
    killed = False
    while host.units.job_result(job) is None and not _is_down(host):
        remaining = deadline - host.clock.monotonic()
        if remaining <= 0:
            if killed:
                raise UnitsError(f"{unit} did not stop, not even after SIGKILL")
            host.units.kill(unit)
            killed, deadline = True, host.clock.monotonic() + 10.0
            continue
        host.units.wait(min(remaining, LONGEST_WAIT))


def _is_down(host: Host) -> bool:
    """The signal that ends a job can be lost when the bus restarts; the unit's state is not."""
    return host.units.state(host.agent.unit).active in ("inactive", "failed")


def hand_to_judge(host: Host) -> str:
    """Have a judge start on what the record holds; why it did not, empty when it did.

    The caller holds the host's lock, so a judge that lives is idle or about to end: it is
    replaced, for starting a unit that is still active would start nobody. A judge whose
    condition was not met counts as started for systemd, and is none.
    """
    result = run_job(host, UnitVerb.RESTART, JUDGE_UNIT, JUDGE_START_SECONDS)
    if result != "done":
        return f"its job ended as {result!r}"
    active = host.units.state(JUDGE_UNIT).active
    if active not in ("active", "activating"):
        return f"it is {active} right after its start: does it look for records elsewhere?"
    return ""


def watch_until_verdict(host: Host, watch: Watch, job: str | None, slot: SlotName) -> Bad | Good:
    """Feed samples of the service to the judge until it decides."""
    while True:
        sample = take_sample(host, job, slot)
        verdict: Verdict = judge(watch, sample)
        if not isinstance(verdict, Undecided):
            return verdict
        if verdict.watch.ready_since is not None and watch.ready_since is None:
            waited = verdict.watch.ready_since - watch.started
            host.event("ready", "complete", host.agent.unit, f"after {waited:.2f} s")
        watch = verdict.watch
        host.units.wait(min(verdict.within, LONGEST_WAIT))


def take_sample(host: Host, job: str | None, slot: SlotName) -> Sample:
    """Look at the service now. `slot` is the one whose release should be running."""
    unit = host.units.state(host.agent.unit)
    return Sample(
        at=host.clock.monotonic(),
        unit=unit,
        job=None if job is None else host.units.job_result(job),
        runs_candidate=runs_from(host, unit.main_pid, slot),
    )


def runs_from(host: Host, pid: int, slot: SlotName) -> bool:
    """Whether a process executes a file of that slot, by device and inode.

    The kernel names the interpreter as what a script's process executes; there the script
    among the process's arguments is compared instead.
    """
    layout = host.agent.layout
    # The kernel resolves links in the path; /usr/local is one on some systems.
    content = layout.root.resolve() / layout.slot(slot).name
    running = host.probe.executable(pid) if pid else None
    path = host.probe.executable_path(pid) if pid else None
    if running is None or path is None:
        return False
    if path.is_relative_to(content):
        return running == _identity(path)
    program = layout.program(content)
    named = host.probe.script(pid)
    return named is not None and _is_script(program) and _identity(named) == _identity(program)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_script(program: Path) -> bool:
    return read_small(program, 2) == b"#!"
