"""The group of all commands, and the one place where errors become exit statuses."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click

from hostsync._version import VERSION
from hostsync.cli import kubeconfigs, orders, services, views
from hostsync.cli.session import Session, echo
from hostsync.errors import ConfigError, ExitCode, HostsyncError

_EXIT_HELP = """Exit status: 0 done; 1 failed, nothing changed (install and sync: done, but a
machine could not follow, or the service was not ready); 2 usage or configuration;
3 refused by preflight; 4 busy; 5 failed and rolled back; 6 failed and NOT restored;
7 in progress (status)."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_HELP)
@click.option("--agent", metavar="NAME", help="Which managed agent; default: the only one.")
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Text for people, or one JSON object per line.",
)  # fmt: skip
@click.option(
    "--config", type=click.Path(path_type=Path), default=Path("/etc/hostsync/config.toml"),
    show_default=True, help="The configuration; a missing file means the defaults.",
)  # fmt: skip
@click.version_option(VERSION, prog_name="hostsync", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, agent: str | None, output: str, config: Path) -> None:
    """Upgrade a host's agent, keep its nspawn machines in step, roll back what fails."""
    context.obj = Session(agent=agent, as_json=output == "json", config=config)


for command in (
    orders.install, orders.upgrade, orders.rollback, orders.recover, services.sync,
    services.daemon, services.judge, kubeconfigs.kubeconfig, views.status, views.history,
    views.version,
):  # fmt: skip
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; prints every error as one line."""
    _prepare_process()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        cli.main(args=words, prog_name="hostsync", standalone_mode=False)
    except HostsyncError as error:
        _complain(error, as_json=_wants_json(words))
        return int(error.exit_code)
    except click.ClickException as error:
        error.show()
        if _wants_json(words):
            _complain_as_json(ConfigError(error.format_message(), remedy="see `hostsync --help`"))
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        echo("hostsync: interrupted; `hostsync status` shows where things stand", err=True)
        return 130
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ExitCode.FAILED)
    return int(ExitCode.DONE)


def _prepare_process() -> None:
    """A request to end is answered by undoing, and what cannot be printed is spelt out."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(error: HostsyncError, *, as_json: bool) -> None:
    from hostsync import render

    if as_json:
        _complain_as_json(error)
    echo(render.error_line(error), err=True)


def _complain_as_json(error: HostsyncError) -> None:
    from hostsync import render

    echo(render.to_json({"error": render.error_value(error)}))


def _wants_json(words: Sequence[str]) -> bool:
    """Whether errors are wanted as JSON too; parsing may have failed, so the words decide."""
    return "--output=json" in words or ("--output", "json") in pairwise(words)


def _interrupt(_number: int, _frame: object) -> None:
    """End by undoing; a second request to end must not interrupt that."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def entry() -> None:
    """The console script."""
    sys.exit(main())
