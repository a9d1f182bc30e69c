"""Commands that change which release runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostsync.cli.session import Session, bind_at_boot, changing, echo, need_root, pass_session
from hostsync.errors import ExitCode, Refused

if TYPE_CHECKING:
    from hostsync.activation.plan import NothingToDo
    from hostsync.activation.switch import Switched


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--no-start", is_flag=True, help="Do not start the service.")
@pass_session
def install(session: Session, path: Path | None, *, no_start: bool) -> None:
    """Install the first release: PATH, else the bundle this command runs from.

    For a single-file agent without PATH: adopt the file or the slots that are there. Repeat it
    after an interruption; a host that is installed already is only brought in step.
    """
    from hostsync.activation.install import install as install_release
    from hostsync.wiring import own_release

    host = session.host
    if path is None and host.agent.owns_assets:
        path = own_release()
    with changing(session, "install"):
        done = install_release(host, path, start=not no_start)
        bind_at_boot(session)
    for problem in done.problems:
        echo(f"hostsync: {problem}", err=True)
    how = "adopted" if done.adopted else "installed"
    session.say(f"{how} {host.agent.name} {done.version} in slot {done.slot}", installed=done)
    if done.problems:
        raise SystemExit(int(ExitCode.FAILED))


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--preflight", is_flag=True, help="Run every check, print the plan, change nothing.")
@click.option("--allow-known-bad", is_flag=True, help="Even if this release failed here before.")
@click.option(
    "--machines-best-effort", is_flag=True, help="Go ahead even if a machine cannot follow."
)
@click.option("--no-wait", is_flag=True, help="Return after the switch; the judge goes on.")
@pass_session
def upgrade(
    session: Session,
    path: Path,
    *,
    preflight: bool,
    allow_known_bad: bool,
    machines_best_effort: bool,
    no_wait: bool,
) -> None:
    """Switch to the release at PATH; keep it if it proves itself, else roll back.

    PATH is a bundle (`.tar.gz` or a directory), or an executable for a single-file agent. The
    candidate is verified on the host and inside every machine before anything is switched.
    """
    from hostsync.activation import switch
    from hostsync.activation.stage import Options

    options = Options(allow_known_bad=allow_known_bad, best_effort=machines_best_effort)
    if preflight:
        from hostsync import render

        with changing(session, f"preflight of {path}"):
            plan = switch.preflight(session.host, path, options)
        session.say(render.plan_text(plan), plan=render.plan_value(plan))
        return
    order(
        session, f"upgrade to {path}", lambda: switch.upgrade(session.host, path, options), no_wait
    )


@click.command()
@click.option("--no-wait", is_flag=True, help="Return after the switch; the judge goes on.")
@pass_session
def rollback(session: Session, *, no_wait: bool) -> None:
    """Switch back to the last good release; judged, and undone if it fails."""
    from hostsync.activation import switch
    from hostsync.activation.stage import Options

    order(session, "rollback", lambda: switch.roll_back(session.host, Options()), no_wait)


@click.command()
@click.option("--set-record-aside", is_flag=True, help="Keep an unreadable record elsewhere.")
@pass_session
def recover(session: Session, *, set_record_aside: bool) -> None:
    """Finish or undo what an interrupted order left; nothing to do when there is none."""
    from hostsync import lock

    host = session.host
    need_root()
    if set_record_aside:
        with lock.held(session.wired.config.run_root, "recover"):
            try:
                host.record.load()
            except Refused:
                kept = host.record.set_aside(f"{host.clock.wall():.0f}")
                session.say(f"the unreadable record is now {kept}", set_aside=str(kept))
    with changing(session, "recover"):
        session.say("nothing is in flight", recovered=True)


def order(
    session: Session, purpose: str, act: Callable[[], Switched | NothingToDo], no_wait: bool
) -> None:
    """Give an order, wait for its verdict unless told otherwise, and exit with its status."""
    from hostsync import lock, render
    from hostsync.activation.orders import follow
    from hostsync.activation.plan import NothingToDo

    with changing(session, purpose):
        done = act()
    if isinstance(done, NothingToDo):
        session.say(f"nothing to do: {done.why}", nothing_to_do=done.why)
        return
    if no_wait:
        session.say(f"switched to {done.version}; the judge has it", order=done.order)
        return
    line = follow(session.host, done.order)
    with lock.held(session.wired.config.run_root, f"the end of order {done.order}", wait=True):
        pass  # The judge has let go: whoever orders next is not turned away as busy.
    session.say(render.verdict_text(line), verdict=line)
    raise SystemExit(int(_OUTCOMES.get(str(line.outcome), ExitCode.FAILED)))


_OUTCOMES = {
    "complete": ExitCode.DONE,
    "rolled-back": ExitCode.ROLLED_BACK,
    "not-restored": ExitCode.NOT_RESTORED,
}
