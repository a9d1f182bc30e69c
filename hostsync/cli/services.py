"""Commands that units run, and the synchronisation of machines."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from hostsync.cli.session import Session, bind_at_boot, changing, need_root, pass_session
from hostsync.errors import ExitCode, HostsyncError, Refused

if TYPE_CHECKING:
    from hostsync.config import Config


@click.command()
@click.option("--before-boot", metavar="MACHINE", hidden=True, help="Prepare a machine's rootfs.")
@pass_session
def sync(session: Session, before_boot: str | None) -> None:
    """Bring every running machine in step with the host, compared by digest; repeatable."""
    if before_boot is not None:
        prepare(session, before_boot)
        return
    from hostsync.sharing import Share, refresh, share
    from hostsync.sync import synchronise

    host = session.host
    problems = 0
    failures: list[HostsyncError] = []
    with changing(session, "sync"):
        with _noting(failures):
            refresh(host.fs, host.config)
        bind_at_boot(session)
        for worker in host.machines.running():
            with _noting(failures):
                report = synchronise(host.machines, host.agent, worker, deep=True)
                problems += bool(report.problem)
                said = report.problem or f"in step, sees {report.release} by {report.view}"
                session.say(f"{worker.name}: {said}", machine=report)
            with _noting(failures):
                shared = share(host.machines, Share.of(host.config), worker)
                problems += bool(shared.problem)
                if shared.words:
                    said = shared.problem or f"credential {shared.words}"
                    session.say(f"{worker.name}: {said}", credential=shared)
    if failures:
        raise failures[0]
    if problems:
        raise SystemExit(int(ExitCode.FAILED))


@click.command(hidden=True)
@pass_session
def judge(session: Session) -> None:
    """Bring the order in flight to its verdict; runs as hostsync-judge.service."""
    from hostsync import lock
    from hostsync.activation.trial import settle
    from hostsync.notify import tell_systemd

    need_root()
    readable, refusals = [], []
    for host in session.wired.hosts:
        try:
            readable.append((host, host.record.load() is not None))
        except Refused as error:
            refusals.append(error)
    if not any(in_flight and host.agent.owns_assets for host, in_flight in readable):
        _hand_to_current(session)
    if refusals and not any(in_flight for _, in_flight in readable):
        raise refusals[0]
    tell_systemd("READY=1\nSTATUS=judging the order in flight")
    with lock.held(session.wired.config.run_root, "judge", wait=True):
        for host, _ in readable:
            settle(host)
    if refusals:
        raise refusals[0]


def _hand_to_current(session: Session) -> None:
    """Judge another agent from hostsync's current release: that one is not on trial."""
    from hostsync.wiring import own_release

    own = own_release()
    for host in session.wired.hosts:
        current = host.agent.layout.current.resolve()
        if host.agent.owns_assets and own is not None and own != current:
            program = host.agent.layout.program(current)
            if os.access(program, os.X_OK):
                os.execv(program, [str(program), *sys.argv[1:]])  # noqa: S606 - no shell is meant


@click.command()
@pass_session
def daemon(session: Session) -> None:
    """Keep machines in step, and take orders from the cluster; runs as hostsync.service."""
    from hostsync.daemon import Daemon
    from hostsync.notify import tell_systemd, watchdog_seconds
    from hostsync.wiring import crew_for_operations, start_events

    need_root()
    config = session.wired.config
    events, crew = start_events(config), crew_for_operations(config, session.tell)
    # Python drops what is raised in a callback of its own, as imports have them; a request to end
    # that was lost so is still seen in that no other one is listened to.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        raise KeyboardInterrupt
    Daemon(session.wired.hosts, events, tell_systemd, watchdog_seconds(), crew).run()


def prepare(session: Session, name: str) -> None:
    """What a machine needs before its init runs; the mirror waits when an order is in flight.

    Each step is taken whether or not another failed; the first failure is raised at the end.
    """
    from hostsync import lock
    from hostsync.sharing import Share, prepare_rootfs, refresh
    from hostsync.sync import converge_rootfs, current_seal, link_commands

    wired = session.wired
    if not wired.config.machines.is_worker(name):
        return
    installed = [h for h in wired.hosts if current_seal(h.agent.layout) is not None]
    roots = tuple(host.agent.layout.root for host in installed)
    rootfs = wired.config.machines.root / name
    failures: list[HostsyncError] = []
    share, bound = Share.of(wired.config), False
    if installed:
        with _noting(failures):
            refresh(installed[0].fs, wired.config)
    with _noting(failures):
        bound = wired.machines.bind_at_boot(name, roots, share.source if installed else None)
    for host in installed:
        with _noting(failures):
            link_commands(host.machines, host.agent, rootfs)
    with (
        _noting(failures),
        lock.held(wired.config.run_root, f"hostsync sync before the boot of {name}"),
    ):
        for host in installed:
            with _noting(failures):
                converge_rootfs(host.machines, host.agent, rootfs, deep=True)
        if installed:
            with _noting(failures):
                why = "" if bound else _why_not_bound(name, wired.config)
                prepare_rootfs(wired.machines, share, rootfs, why)
    if failures:
        raise failures[0]


def _why_not_bound(name: str, config: Config) -> str:
    if name in config.machines.mirror_only:
        return "the configuration says mirror only"
    return "its settings do not say PrivateUsers=no"


@contextmanager
def _noting(failures: list[HostsyncError]) -> Iterator[None]:
    try:
        yield
    except HostsyncError as error:
        failures.append(error)
