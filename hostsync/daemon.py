"""The daemon: keeps machines in step between upgrades, and finishes what a record holds.

It serves nothing on the network. Its own thread waits for machined's word that a machine started,
and in between looks for drift; orders from the cluster have threads of their own (`operations`),
which start once everything that a record held has been settled or given to the judge.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import Enum, auto
from types import FrameType
from typing import TYPE_CHECKING

from hostsync import credential, lock
from hostsync.activation.host import Host
from hostsync.activation.orders import is_unsettled, settle_all
from hostsync.errors import Busy, HostsyncError
from hostsync.ports import View, Worker
from hostsync.sharing import Share, look, refresh, share
from hostsync.sync import inspect, synchronise

if TYPE_CHECKING:
    from hostsync.operations.crew import Crew

DEEP_EVERY = 10
"""Every so many looks for drift the content of mirrors is compared by digest."""
RETRY_SECONDS = 2.0
"""When to look again while the lock is taken; what keeps failing is tried ever less often."""
GLANCE_SECONDS = 5.0
"""How often the credential's files are glanced at in between, once there are any."""


class Daemon:
    """One run of the daemon over all agents of the host."""

    def __init__(
        self,
        hosts: tuple[Host, ...],
        wait_for_start: Callable[[float], str | None],
        tell_systemd: Callable[[str], None],
        watchdog: float | None,
        crew: Crew | None = None,
    ) -> None:
        self._hosts = hosts
        self._wait_for_start = wait_for_start
        self._tell_systemd = tell_systemd
        self._watchdog = watchdog
        self._crew = crew
        self._looks = 0
        self._failures = 0
        self._glanced: tuple[object, ...] = ()

    def run(self) -> None:
        """Run until a signal ends it; raises SystemExit(0) then, or what ended the crew."""
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        next_look = self._look()
        orders = "" if self._crew is None else ", taking orders from the cluster"
        self._tell_systemd(f"READY=1\nSTATUS=keeping machines in step{orders}")
        if self._crew is not None:
            self._crew.start()
        while True:
            if self._crew is not None:
                self._crew.check()
            clock = self._hosts[0].clock
            pause = max(next_look - clock.monotonic(), 0.0)
            if self._glanced:
                pause = min(pause, GLANCE_SECONDS)
            if self._watchdog is not None:
                pause = min(pause, self._watchdog / 3)
                self._tell_systemd("WATCHDOG=1")
            started = self._started(pause)
            if started or clock.monotonic() >= next_look or self._glance() != self._glanced:
                next_look = self._look()

    def _started(self, seconds: float) -> bool:
        """Whether a machine starts within that time.

        A bus that is away is no reason to end: looking goes on, and its end is noticed there.
        """
        host = self._hosts[0]
        before = host.clock.monotonic()
        try:
            return self._wait_for_start(seconds) is not None
        except HostsyncError as error:
            host.event("watch", "failed", "machines", str(error))
            host.clock.sleep(max(before + min(seconds, RETRY_SECONDS) - host.clock.monotonic(), 0))
            return False

    def _settle(self) -> None:
        """Finish an order that nobody is left to finish; one under judgement is left alone."""
        try:
            with lock.held(self._hosts[0].config.run_root, "hostsync daemon"):
                settle_all(self._hosts)
        except Busy:
            return
        except HostsyncError as error:
            self._hosts[0].event("settle", "failed", "record", str(error))

    def _look(self) -> float:
        """Bring what has drifted back in step and return when to look again.

        What a command that was killed in mid-order left is settled first.
        """
        if any(is_unsettled(host) for host in self._hosts):
            self._settle()
        self._looks += 1
        deep = self._looks % DEEP_EVERY == 0
        found = {step for host in self._hosts for step in self._look_at(host, deep=deep)}
        found.update(self._share())
        self._failures = self._failures + 1 if Keeping.FAILED in found else 0
        longest = self._hosts[0].config.machines.check_seconds
        if Keeping.BUSY in found:
            pause = RETRY_SECONDS
        elif Keeping.FAILED in found:
            pause = min(RETRY_SECONDS * 2 ** min(self._failures - 1, 16), longest)
        else:
            pause = longest
        return self._hosts[0].clock.monotonic() + pause

    def _look_at(self, host: Host, *, deep: bool) -> list[Keeping]:
        try:
            workers = host.machines.running()
        except HostsyncError as error:
            host.event("sync", "failed", "machines", str(error))
            return [Keeping.FAILED]
        return [self._keep(host, worker, deep=deep) for worker in workers]

    def _keep(self, host: Host, worker: Worker, *, deep: bool) -> Keeping:
        if self._watchdog is not None:
            self._tell_systemd("WATCHDOG=1")
        found = inspect(host.machines, host.agent, worker, deep=deep)
        # A mirror serves, but a machine that may have the bind is to have it back.
        if found.in_step and (found.view is not View.MIRROR or not worker.bindable):
            return Keeping.IN_STEP
        try:
            purpose = f"sync of machine {worker.name}"
            with lock.held(host.config.run_root, purpose, brief=True):
                report = synchronise(host.machines, host.agent, worker, deep=deep)
        except Busy:
            return Keeping.BUSY
        except HostsyncError as error:
            host.event("sync", "failed", f"machine {worker.name}", str(error))
            return Keeping.FAILED
        if report.problem:
            host.event("sync", "failed", f"machine {worker.name}", report.problem)
            return Keeping.FAILED
        if not found.in_step or report.view is not found.view:
            host.event("sync", "complete", f"machine {worker.name}", report.release)
        return Keeping.IN_STEP

    def _glance(self) -> tuple[object, ...]:
        config = self._hosts[0].config
        return credential.stamp(config.credential_file, config.credential_root)

    def _share(self) -> list[Keeping]:
        """Bring the credential up to date, on the host and then in each machine."""
        host = self._hosts[0]
        found = []
        self._glanced = self._glance()
        try:
            if self._glanced and refresh(host.fs, host.config):
                host.event("share", "complete", str(host.config.credential_file))
        except HostsyncError as error:
            host.event("share", "failed", str(host.config.credential_file), str(error))
            found.append(Keeping.FAILED)
        try:
            workers = host.machines.running() if self._glanced else ()
        except HostsyncError as error:
            host.event("share", "failed", "machines", str(error))
            return [Keeping.FAILED]
        return found + [self._share_with(host, worker) for worker in workers]

    def _share_with(self, host: Host, worker: Worker) -> Keeping:
        what = Share.of(host.config)
        if not look(host.machines, what, worker).problem:
            return Keeping.IN_STEP
        try:
            purpose = f"sharing with machine {worker.name}"
            with lock.held(host.config.run_root, purpose, brief=True):
                shared = share(host.machines, what, worker)
            problem = shared.problem
        except Busy:
            return Keeping.BUSY
        except HostsyncError as error:
            problem = str(error)
        if problem:
            host.event("share", "failed", f"machine {worker.name}", problem)
            return Keeping.FAILED
        host.event("share", "complete", f"machine {worker.name}", shared.words)
        return Keeping.IN_STEP


class Keeping(Enum):
    """What came of keeping one machine in step."""

    IN_STEP = auto()
    BUSY = auto()
    FAILED = auto()


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
