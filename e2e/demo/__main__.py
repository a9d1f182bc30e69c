"""`python -m e2e.demo`: play the story, show it, leave a report; exit 0 if every promise was kept.

Exit status: 0 all promises kept; 1 a promise broken; 2 this machine cannot run the lab.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.status import Status

from e2e.boot import boot_lab
from e2e.demo import plot, screen
from e2e.demo.report import Report
from e2e.demo.story import make_releases, run_story
from e2e.engine import LabUnavailableError
from e2e.ground import default_cache
from e2e.lab import LabBrokenError
from e2e.releases import Releases


def main(argv: Sequence[str]) -> int:
    """Run the demonstration and return its exit status."""
    given = _parser().parse_args(argv)
    # A polite kill takes the lab down as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else screen.WIDTH, highlight=False)
    try:
        with console.status("") as status:
            report = _play(given.cache, _progress(console, status))
    except LabUnavailableError as error:
        console.print(f"demo: this machine cannot run the lab: {error}", markup=False)
        return 2
    except LabBrokenError as error:
        console.print(f"demo: the lab did not come up: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("demo: interrupted, the lab is gone")
        return 130
    console.print()
    screen.show(report, console)
    leave(report, given.output)
    console.print(f"report: {given.output}/ timeline.txt, report.json, timeline.svg, timeline.png")
    return 0 if report.kept else 1


def leave(report: Report, directory: Path) -> None:
    """Write the report's four files, over those of an earlier run."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "timeline.txt").write_text(screen.plain(report), encoding="utf-8")
    (directory / "report.json").write_text(report.to_json(), encoding="utf-8")
    plot.draw(report, directory / "timeline.svg", directory / "timeline.png")


def _play(cache: Path, say: Callable[[str], None]) -> Report:
    say("booting a host with a machine; the first time its images are built, a minute or two")
    with boot_lab(cache=cache / "lab", on_progress=say) as lab:
        releases = Releases(cache, say)
        make_releases(releases)
        say("five orders follow; kubelet renews its Lease every second meanwhile")
        return Report.of(run_story(lab, releases, say))


def _progress(console: Console, status: Status) -> Callable[[str], None]:
    """Print each step with its time; on a terminal the last one also spins."""
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:5.1f} s  {text}", style="dim", markup=False)
        status.update(text)

    return say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-report"),
        metavar="DIR",
        help="where the report goes (default: %(default)s)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache().parent,
        metavar="DIR",
        help="where images and releases are kept between runs (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
