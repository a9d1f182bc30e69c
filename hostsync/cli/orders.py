"""Commands that change which release runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from hostsync.cli.session import (
    Session,
    bind_at_boot,
    changing,
    echo,
    holding,
    need_root,
    pass_session,
    share_credential,
)
from hostsync.errors import ConfigError, ExitCode, Refused

if TYPE_CHECKING:
    from hostsync.activation.plan import NothingToDo, Plan
    from hostsync.activation.switch import Switched
    from hostsync.model import Digest
    from hostsync.release import Given
    from hostsync.release.url import Place


_SIGNATURE = click.option(
    "--signature", type=click.Path(path_type=Path), help="Its minisign file, if not beside it."
)


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--sha256", metavar="HEX", help="What the archive's SHA-256 must be.")
@_SIGNATURE
@click.option("--no-start", is_flag=True, help="Do not start the service.")
@pass_session
def install(
    session: Session,
    path: Path | None,
    sha256: str | None,
    signature: Path | None,
    *,
    no_start: bool,
) -> None:
    """Install the first release: PATH, else the bundle this command runs from.

    For a single-file agent without PATH: adopt the file or the slots that are there. Repeat it
    after an interruption; a host that is installed already is only brought in step. PATH is held
    to a digest and to the trusted keys as `upgrade` holds it.
    """
    from hostsync.activation.install import install as install_release

    host = session.host
    with _offered(session, path, sha256, signature) as given, changing(session, "install"):
        done = install_release(host, given, start=not no_start)
        share_credential(session)
        bind_at_boot(session)
    for problem in done.problems:
        echo(f"hostsync: {problem}", err=True)
    how = "adopted" if done.adopted else "installed"
    session.say(f"{how} {host.agent.name} {done.version} in slot {done.slot}", installed=done)
    if done.problems:
        raise SystemExit(int(ExitCode.FAILED))


class _Flags(TypedDict):
    signature: Path | None
    preflight: bool
    allow_known_bad: bool
    machines_best_effort: bool
    no_wait: bool


@click.command()
@click.argument("place", metavar="PATH|URL")
@click.option("--sha256", metavar="HEX", help="What the archive's SHA-256 must be; for a URL due.")
@_SIGNATURE
@click.option("--preflight", is_flag=True, help="Run every check, print the plan, change nothing.")
@click.option("--allow-known-bad", is_flag=True, help="Even if this release failed here before.")
@click.option(
    "--machines-best-effort", is_flag=True, help="Go ahead even if a machine cannot follow."
)
@click.option("--no-wait", is_flag=True, help="Return after the switch; the judge goes on.")
@pass_session
def upgrade(session: Session, place: str, sha256: str | None, **flags: Unpack[_Flags]) -> None:
    """Switch to the release at PATH or URL; keep it if it proves itself, else roll back.

    PATH is a bundle (`.tar.gz` or a directory), or an executable for a single-file agent; a URL is
    https:// or file://, or `-` to read one from standard input, where no process list shows it.
    The candidate is verified on the host and inside every machine before anything is switched.
    """
    from hostsync.activation import switch
    from hostsync.activation.stage import Options

    where, digest = parse_order(place, sha256)
    options = Options(
        allow_known_bad=flags["allow_known_bad"], best_effort=flags["machines_best_effort"]
    )
    act = "preflight of" if flags["preflight"] else "upgrade to"
    with (
        obtained(session, where, digest, flags["signature"]) as given,
        changing(session, f"{act} {where}"),
    ):
        if flags["preflight"]:
            tell_plan(session, switch.preflight(session.host, given, options))
            return
        done = switch.upgrade(session.host, given, options)
    conclude(session, done, no_wait=flags["no_wait"])


@click.command()
@click.option("--no-wait", is_flag=True, help="Return after the switch; the judge goes on.")
@pass_session
def rollback(session: Session, *, no_wait: bool) -> None:
    """Switch back to the last good release; judged, and undone if it fails."""
    from hostsync.activation import switch
    from hostsync.activation.stage import Options

    with changing(session, "rollback"):
        done = switch.roll_back(session.host, Options())
    conclude(session, done, no_wait=no_wait)


@click.command()
@click.option("--set-record-aside", is_flag=True, help="Keep an unreadable record elsewhere.")
@pass_session
def recover(session: Session, *, set_record_aside: bool) -> None:
    """Finish or undo what an interrupted order left; nothing to do when there is none."""
    host = session.host
    need_root()
    if set_record_aside:
        with holding(session, "recover"):
            try:
                host.record.load()
            except Refused:
                kept = host.record.set_aside(f"{host.clock.wall():.0f}")
                session.say(f"the unreadable record is now {kept}", set_aside=str(kept))
    with changing(session, "recover"):
        session.say("nothing is in flight", recovered=True)


@contextmanager
def _offered(
    session: Session, path: Path | None, sha256: str | None, signature: Path | None
) -> Iterator[Given | None]:
    """What to install: PATH, proven; else the bundle that runs, which it is too late to doubt."""
    from hostsync.wiring import own_release

    if path is not None:
        # A first release comes from a path: there is no slot root yet to fetch one to.
        _, digest = parse_order(str(path), sha256)
        with obtained(session, path, digest, signature) as given:
            yield given
    elif sha256 is not None or signature is not None:
        brief = "--sha256 and --signature are about a PATH, and none was given"
        raise ConfigError(brief, remedy="name the release: `hostsync install PATH`")
    else:
        yield own_release() if session.host.agent.owns_assets else None


def parse_order(place: str, sha256: str | None) -> tuple[Place, Digest | None]:
    """What the command line names; raises ConfigError, which does not repeat a URL."""
    from hostsync.model import Digest
    from hostsync.release.url import URL_LIMIT, parse_place

    try:
        text = sys.stdin.readline(URL_LIMIT + 2).strip() if place == "-" else place
        return parse_place(text), Digest.parse(sha256) if sha256 is not None else None
    except ValueError as error:
        trouble = str(error)
    raise ConfigError(trouble, remedy="see `hostsync upgrade --help`")


@contextmanager
def obtained(
    session: Session, place: Place, digest: Digest | None, signature: Path | None
) -> Iterator[Given]:
    """The candidate, fetched if need be with its progress shown, and proven.

    The host's lock is not held meanwhile, but whoever holds it now is told before, not after.
    """
    from hostsync.activation.intake import Proof, obtain
    from hostsync.cli.progress import Progress
    from hostsync.release.url import DownloadUrl

    if isinstance(place, DownloadUrl):
        with changing(session, f"look before an upgrade to {place}"):
            pass
    with closing(Progress(session)) as progress:
        proof = Proof(digest=digest, signature=signature, on_fetched=progress.show)
        with obtain(session.host, place, proof) as given:
            progress.close()
            yield given


def tell_plan(session: Session, plan: Plan | NothingToDo) -> None:
    """Print what an order would do."""
    from hostsync import render

    session.say(render.plan_text(plan), plan=render.plan_value(plan))


def conclude(session: Session, done: Switched | NothingToDo, *, no_wait: bool) -> None:
    """Wait for the verdict on an order unless told otherwise, and exit with its status."""
    from hostsync import lock, render
    from hostsync.activation.orders import follow
    from hostsync.activation.plan import NothingToDo

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
