"""Commands that units run, and the synchronisation of machines."""

from __future__ import annotations

import os
import sys

import click

from hostsync.cli.session import Session, bind_at_boot, changing, need_root, pass_session
from hostsync.errors import ExitCode


@click.command()
@click.option("--before-boot", metavar="MACHINE", hidden=True, help="Prepare a machine's rootfs.")
@pass_session
def sync(session: Session, before_boot: str | None) -> None:
    """Bring every running machine in step with the host, compared by digest; repeatable."""
    if before_boot is not None:
        prepare(session, before_boot)
        return
    from hostsync.sync import synchronise

    host = session.host
    problems = 0
    with changing(session, "sync"):
        bind_at_boot(session)
        for worker in host.machines.running():
            report = synchronise(host.machines, host.agent, worker, deep=True)
            problems += bool(report.problem)
            said = report.problem or f"in step, sees {report.release} by {report.view}"
            session.say(f"{worker.name}: {said}", machine=report)
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
    in_flight = [h for h in session.wired.hosts if h.record.load() is not None]
    if in_flight and not any(host.agent.owns_assets for host in in_flight):
        _hand_to_current(session)
    tell_systemd("READY=1\nSTATUS=judging the order in flight")
    with lock.held(session.wired.config.run_root, "judge", wait=True):
        for host in session.wired.hosts:
            settle(host)


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
    """Keep machines in step between upgrades; runs as hostsync.service."""
    from hostsync.daemon import Daemon
    from hostsync.notify import tell_systemd, watchdog_seconds
    from hostsync.wiring import start_events

    need_root()
    events = start_events(session.wired.config)
    Daemon(session.wired.hosts, events, tell_systemd, watchdog_seconds()).run()


def prepare(session: Session, name: str) -> None:
    """What a machine needs before its init runs; the mirror waits when an order is in flight."""
    from hostsync import lock
    from hostsync.sync import converge_rootfs, link_commands

    wired = session.wired
    if not wired.config.machines.is_worker(name):
        return
    roots = tuple(h.agent.layout.root for h in wired.hosts if h.agent.layout.root.is_dir())
    wired.machines.bind_at_boot(name, roots)
    rootfs = wired.config.machines.root / name
    for host in wired.hosts:
        if host.agent.layout.root.is_dir():
            link_commands(host.machines, host.agent, rootfs)
    with lock.held(wired.config.run_root, f"hostsync sync before the boot of {name}"):
        for host in wired.hosts:
            if host.agent.layout.root.is_dir():
                converge_rootfs(host.machines, host.agent, rootfs, deep=True)
