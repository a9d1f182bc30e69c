"""Commands that only look."""

from __future__ import annotations

import click

from hostsync._version import PROTOCOL, VERSION
from hostsync.cli.session import Session, echo, pass_session


@click.command()
@pass_session
def status(session: Session) -> None:
    """Say which release is current, what each machine sees, and what is in flight."""
    from hostsync import render
    from hostsync.status import gather

    found = gather(session.host)
    session.say(render.status_text(found), status=found)
    raise SystemExit(int(found.exit_code))


@click.command()
@pass_session
def history(session: Session) -> None:
    """List the orders of this host and how they ended, oldest first."""
    from hostsync import render

    for line in session.host.state.history():
        session.say(render.history_text(line), order=line)
        if line.evidence and not session.as_json:
            echo(render.evidence_text(line.evidence))


@click.command()
@pass_session
def version(session: Session) -> None:
    """Say which release this is."""
    if session.as_json:
        session.say("", version=VERSION, protocol=PROTOCOL)
    else:
        echo(f"hostsync {VERSION} (protocol {PROTOCOL})")
