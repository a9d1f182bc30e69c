"""The verdict on a trial: pure, fed with samples, so that time is data.

Facts it rests on (see docs/guarantees.md for the tests):
- A unit that exits 0 or on a clean signal just goes inactive; nothing fails. So any end of the
  process before the verdict is a failure, whatever its status.
- `Restart=` may bring a crashed process back before anybody looks: the count of automatic
  restarts and the invocation id tell, a single look at "active" does not.
- MainPID 0 is "nothing runs", never "unchanged"; only while systemd is still working its way
  to the process (start-pre, condition, start) may it be 0.
- OnFailure= fires at different times before and after systemd 254; nothing here depends on it.
"""

from __future__ import annotations

import msgspec

from hostsync.config import Health, Readiness
from hostsync.ports import UnitState

_BEFORE_THE_PROCESS = frozenset({"condition", "start-pre", "start"})
LONGEST_BEFORE_START = 300.0
"""Seconds that may pass before the candidate is started: the old release stops, jobs wait."""

_UNIT_STARTS = frozenset({"activating", "active", "reloading"})


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The service at one instant; `at` in monotonic seconds.

    `job` is the result of the restart job, None while it runs or when none was asked for.
    `runs_candidate` says whether the process executes the file it should.
    """

    at: float
    unit: UnitState
    job: str | None
    runs_candidate: bool


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge remembers between samples; starts anew after a reboot.

    `started` is when the candidate's time began, `asked` when the restart was asked for (by
    default the same), `baseline` the invocation before it (empty when the running one may
    already be the candidate's) and `restarts` the count of automatic restarts then.
    """

    health: Health
    started: float
    baseline: str
    asked: float | None = None
    restarts: int = 0
    invocation: str = ""
    pid: int = 0
    running_since: float | None = None
    ready_since: float | None = None


class Undecided(msgspec.Struct, frozen=True):
    """Go on watching with this memory; look again after at most `within` seconds."""

    watch: Watch
    within: float


class Bad(msgspec.Struct, frozen=True):
    """The release failed; `reason` is for people and for the record."""

    reason: str


class Good(msgspec.Struct, frozen=True):
    """The service did all that was asked of it, over the whole window."""

    ready_after: float


Verdict = Undecided | Bad | Good


def judge(watch: Watch, sample: Sample) -> Verdict:
    """Take one more sample into account."""
    if sample.job not in (None, "done"):
        return Bad(f"systemd could not start it: the job ended as {sample.job!r}{_result(sample)}")
    seen = _follow(watch, sample)
    if isinstance(seen, Bad):
        return seen
    if seen.ready_since is None:
        return _not_ready_yet(seen, sample)
    if not sample.runs_candidate:
        return Bad("the service runs another executable than the release under trial")
    healthy_for = sample.at - seen.ready_since
    if healthy_for >= seen.health.window_seconds:
        return Good(ready_after=seen.ready_since - seen.started)
    return Undecided(seen, seen.health.window_seconds - healthy_for)


def _follow(watch: Watch, sample: Sample) -> Watch | Bad:
    unit = sample.unit
    if not watch.invocation:
        if unit.invocation in ("", watch.baseline) or unit.active == "deactivating":
            return _before_the_start(watch, sample)
        watch = msgspec.structs.replace(watch, invocation=unit.invocation)
    ended = _ended(watch, sample)
    if ended is not None:
        return ended
    if unit.main_pid == 0:
        return watch
    if watch.running_since is None:
        watch = msgspec.structs.replace(watch, pid=unit.main_pid, running_since=sample.at)
    if watch.ready_since is None and _ready(watch, sample):
        watch = msgspec.structs.replace(watch, ready_since=sample.at)
    return watch


def _before_the_start(watch: Watch, sample: Sample) -> Watch:
    """The old release's own time to stop, and a job that waits, are not the candidate's time."""
    asked = watch.started if watch.asked is None else watch.asked
    waits = sample.unit.active in ("deactivating", "inactive") and sample.job is None
    if waits and sample.at - asked < LONGEST_BEFORE_START:
        return msgspec.structs.replace(watch, started=sample.at, asked=asked)
    return watch


def _ended(watch: Watch, sample: Sample) -> Bad | None:
    unit = sample.unit
    if unit.invocation != watch.invocation or unit.restarts not in (0, watch.restarts):
        return Bad(f"it ended and was started again{_result(sample)}")
    if unit.active not in _UNIT_STARTS:
        return Bad(f"it ended: the service is {unit.active} ({unit.sub}){_result(sample)}")
    before_the_process = unit.active == "activating" and unit.sub in _BEFORE_THE_PROCESS
    if unit.main_pid == 0 and (watch.pid or not before_the_process):
        return Bad(f"no process runs although the service is {unit.active} ({unit.sub})")
    if watch.pid and unit.main_pid != watch.pid:
        return Bad("its main process was replaced by another")
    return None


def _ready(watch: Watch, sample: Sample) -> bool:
    if sample.unit.active != "active":
        return False
    if watch.health.readiness is Readiness.NOTIFY:
        return True
    since = sample.at if watch.running_since is None else watch.running_since
    return sample.at - since >= watch.health.stable_seconds


def _not_ready_yet(watch: Watch, sample: Sample) -> Verdict:
    waited = sample.at - watch.started
    if waited >= watch.health.start_seconds:
        return Bad(f"it was not ready within {watch.health.start_seconds:g} s")
    within = watch.health.start_seconds - waited
    if watch.running_since is not None and watch.health.readiness is Readiness.STABLE:
        settled = watch.running_since + watch.health.stable_seconds - sample.at
        within = min(within, max(settled, 0.0))
    return Undecided(watch, within)


def _result(sample: Sample) -> str:
    result = sample.unit.result
    return f" (result: {result})" if result not in ("", "success") else ""
