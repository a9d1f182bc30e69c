"""The daemon: keeps machines in step between upgrades, and finishes what a record holds.

It serves nothing on the network. One thread: it waits for machined's word that a machine
started, and in between looks for drift.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from hostsync import lock
from hostsync.activation.host import Host
from hostsync.activation.orders import settle_all
from hostsync.errors import Busy, HostsyncError
from hostsync.ports import Worker
from hostsync.sync import inspect, synchronise

DEEP_EVERY = 10
"""Every so many looks for drift the content of mirrors is compared by digest."""
RETRY_SECONDS = 2.0


class Daemon:
    """One run of the daemon over all agents of the host."""

    def __init__(
        self,
        hosts: tuple[Host, ...],
        wait_for_start: Callable[[float], str | None],
        tell_systemd: Callable[[str], None],
        watchdog: float | None,
    ) -> None:
        self._hosts = hosts
        self._wait_for_start = wait_for_start
        self._tell_systemd = tell_systemd
        self._watchdog = watchdog
        self._looks = 0

    def run(self) -> None:
        """Run until a signal ends it; raises SystemExit(0) then."""
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        self._settle()
        next_look = self._look()
        self._tell_systemd("READY=1\nSTATUS=keeping machines in step")
        while True:
            clock = self._hosts[0].clock
            pause = max(next_look - clock.monotonic(), 0.0)
            if self._watchdog is not None:
                pause = min(pause, self._watchdog / 3)
                self._tell_systemd("WATCHDOG=1")
            started = self._wait_for_start(pause)
            if started is not None or clock.monotonic() >= next_look:
                next_look = self._look()

    def _settle(self) -> None:
        """Finish an order that nobody is left to finish; one under judgement is left alone."""
        try:
            with lock.held(self._hosts[0].config.run_root, "daemon start"):
                settle_all(self._hosts)
        except Busy:
            return
        except HostsyncError as error:
            self._hosts[0].event("settle", "failed", "record", str(error))

    def _look(self) -> float:
        """Bring what has drifted back in step and return when to look again."""
        self._looks += 1
        deep = self._looks % DEEP_EVERY == 0
        in_step = [self._look_at(host, deep=deep) for host in self._hosts]
        pause = self._hosts[0].config.machines.check_seconds if all(in_step) else RETRY_SECONDS
        return self._hosts[0].clock.monotonic() + pause

    def _look_at(self, host: Host, *, deep: bool) -> bool:
        try:
            workers = host.machines.running()
        except HostsyncError as error:
            host.event("sync", "failed", "machines", str(error))
            return False
        in_step = [self._keep(host, worker, deep=deep) for worker in workers]
        return all(in_step)

    def _keep(self, host: Host, worker: Worker, *, deep: bool) -> bool:
        if inspect(host.machines, host.agent, worker, deep=deep).in_step:
            return True
        try:
            with lock.held(host.config.run_root, f"sync of machine {worker.name}"):
                report = synchronise(host.machines, host.agent, worker, deep=deep)
        except Busy:
            return False
        except HostsyncError as error:
            host.event("sync", "failed", f"machine {worker.name}", str(error))
            return False
        said = report.problem or report.release
        host.event(
            "sync", "failed" if report.problem else "complete", f"machine {worker.name}", said
        )
        return report.in_step


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
