"""The report for people, on a terminal or in a file: the same text in both."""

from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from e2e.demo.model import Act, Moment, Promise, TokenUse
from e2e.demo.report import Report

WIDTH = 100
BUSY_LOAD = 1.5
"""Load per core beyond which the machine has other work than the demonstration."""
_STYLES = {
    "switch": "cyan",
    "seen inside": "cyan",
    "crash": "red",
    "rollback": "yellow",
    "verdict": "bold",
}
_ENDS = {
    "installed": "green",
    "complete": "green",
    "rolled-back": "yellow",
    "refused": "yellow",
}


def show(report: Report, console: Console) -> None:
    """Print timeline, tokens and promises."""
    for act, moments in report.scenes:
        console.print(_heading(act))
        console.print(_moments(moments))
    console.print()
    console.print(_tokens(report.story.tokens))
    console.print()
    console.print(_promises(report.promises))
    broken = sum(not promise.kept for promise in report.promises)
    if broken:
        console.print(f"{broken} of {len(report.promises)} promises broken", style="bold red")
        if report.story.load > BUSY_LOAD:
            console.print(
                f"this machine was busy, load {report.story.load:.1f} per core: what came late may "
                "have waited for a core"
            )
    else:
        console.print(f"all {len(report.promises)} promises kept", style="bold green")


def plain(report: Report) -> str:
    """The same for a file: no colours, no blanks at the ends of lines."""
    page = StringIO()
    show(report, Console(file=page, width=WIDTH, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def _heading(act: Act) -> Text:
    end = act.outcome.replace("-", " ")
    return Text.assemble(
        (f"{act.release} ", "bold"),
        act.title,
        (f"  {end} in {act.took:.1f} s", _ENDS.get(act.outcome, "red")),
    )


def _moments(moments: tuple[Moment, ...]) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(justify="right", width=11, no_wrap=True)
    table.add_column(width=13, no_wrap=True)
    table.add_column(overflow="fold")
    for moment in moments:
        style = _STYLES.get(moment.what, "")
        table.add_row(
            Text(f"{moment.after:+.3f} s", "dim"), Text(moment.what, style), Text(moment.detail)
        )
    return table


def _tokens(uses: tuple[TokenUse, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    names = (
        "tokens by release",
        "heartbeats served",
        "tokens fetched",
        "of them used for the Lease",
    )
    for name in names:
        table.add_column(justify="left" if name is names[0] else "right")
    table.add_row(*(Text(name, "bold") for name in names))
    for use in uses:
        table.add_row(use.release, str(use.beats), str(use.fetched), str(use.used))
    return table


def _promises(promises: tuple[Promise, ...]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(ratio=3)
    table.add_column(ratio=2)
    for promise in promises:
        mark = Text("✓", "green") if promise.kept else Text("✗", "bold red")
        measured = promise.measured
        if not promise.kept or promise.limit.startswith(("at most", "within")):
            measured += f" (promised: {promise.limit})"
        table.add_row(mark, promise.name, Text(measured, "" if promise.kept else "red"))
    return table
