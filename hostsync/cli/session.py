"""One invocation of the command line: how it prints, what it holds, whom it asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostsync.errors import HostsyncError, Reason, Refused

if TYPE_CHECKING:
    from hostsync.activation.host import Event, Host
    from hostsync.wiring import Wired


class Session:
    """One invocation: how to print, and the wired host, built at first use."""

    def __init__(self, *, agent: str | None, as_json: bool, config: Path) -> None:
        self.agent = agent
        self.as_json = as_json
        self._config = config
        self._wired: Wired | None = None

    @property
    def wired(self) -> Wired:
        """The host with its real adapters."""
        if self._wired is None:
            from hostsync import config, wiring

            self._wired = wiring.wire(config.load(self._config), self.tell)
        return self._wired

    @property
    def host(self) -> Host:
        """The host as the chosen agent's transaction sees it."""
        return self.wired.host(self.wired.config.agent(self.agent))

    def say(self, text: str, **value: object) -> None:
        """Print for people, or the same as one line of JSON."""
        from hostsync import render

        echo(render.to_json(value) if self.as_json else text)

    def tell(self, event: Event) -> None:
        """Print an event."""
        from hostsync import render

        self.say(render.event_line(event), event=event)


def echo(text: str, *, err: bool = False) -> None:
    """Print; once nobody reads any more, nothing is printed.

    A pipe that was closed or a disk that is full must not stop an order half-way, and least of
    all a roll back.
    """
    try:
        click.echo(text, err=err)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # What is still in the stream's buffer must not fail again when the process ends.
        os.dup2(nowhere, (sys.stderr if err else sys.stdout).fileno())
        os.close(nowhere)


pass_session = click.make_pass_decorator(Session)


@contextmanager
def holding(session: Session, purpose: str) -> Iterator[None]:
    """Hold the host's lock; the daemon's housekeeping is waited for."""
    from hostsync import lock

    run_root = session.wired.config.run_root
    patience = lock.Patience(
        session.wired.hosts[0].clock, lambda what: echo(f"hostsync: {what}", err=True)
    )
    with lock.held(run_root, f"hostsync {purpose}", patience=patience):
        yield


@contextmanager
def changing(session: Session, purpose: str) -> Iterator[None]:
    """Hold the host's lock, with everything earlier settled."""
    from hostsync.activation.orders import settle_all

    need_root()
    with holding(session, purpose):
        settle_all(session.wired.hosts)
        yield


def share_credential(session: Session) -> None:
    """Have running machines see the host's credential, if there is one; trouble is told."""
    from hostsync.sharing import Share, refresh, share

    host = session.host
    try:
        refresh(host.fs, host.config)
        for worker in host.machines.running():
            problem = share(host.machines, Share.of(host.config), worker).problem
            if problem:
                echo(f"hostsync: {problem}", err=True)
    except HostsyncError as error:
        echo(f"hostsync: {error}", err=True)


def bind_at_boot(session: Session) -> None:
    """Have running machines bind at their next start what they have now; trouble is told."""
    wired = session.wired
    roots = tuple(h.agent.layout.root for h in wired.hosts if h.agent.layout.root.is_dir())
    for worker in wired.hosts[0].machines.running():
        try:
            shared = wired.config.credential_root if worker.bindable else None
            wired.machines.bind_at_boot(worker.name, roots, shared)
        except HostsyncError as error:
            echo(f"hostsync: {error}", err=True)


def need_root() -> None:
    """Refuse when the caller is not root."""
    if os.geteuid() != 0:
        raise Refused(Reason.NOT_ROOT, "this changes the host", remedy="run it as root")
