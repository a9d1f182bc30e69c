"""The report as a picture: what ran where and when, and that kubelet never noticed."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e2e.demo.model import Act, Sighting, Story
from e2e.demo.promises import LEASE_SECONDS, renewal_gaps
from e2e.demo.report import Report
from e2e.demo.timeline import first_crash

COLOURS = {
    "1.0.0": "#8da9c4",
    "1.1.0": "#3a7d5d",
    "1.2.0": "#c8553d",
    "1.3.0": "#d9a441",
    "1.4.0": "#7a5c8e",
}
GREY, INK, RED, AMBER, GREEN = "#d8d8d4", "#222222", "#b3261e", "#8a5a00", "#2e7d4f"
ORDERS, HOST, INSIDE, SERVICE, BEATS = 4.0, 3.0, 2.0, 1.0, 0.0
HEIGHT = 0.56
LINE_COLUMNS = 150
"""Letters of the smaller size that fit side by side over the whole width."""
LANES = {
    ORDERS: "orders (● verdict)",
    HOST: "current on the host",
    INSIDE: "seen inside kube1",
    SERVICE: "hostsync.service",
    BEATS: "kubelet's heartbeats",
}
_ENDS = {
    "installed": ("✓ installed", GREEN),
    "complete": ("✓ kept", GREEN),
    "rolled-back": ("↶ rolled back", AMBER),
    "refused": ("✗ refused", AMBER),
}


def draw(report: Report, *paths: Path) -> None:
    """Draw the report into each of the files; their names say the format."""
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 10, "font.family": "DejaVu Sans"}):
        figure = _figure(report)
        for path in paths:
            figure.savefig(path, dpi=130)


def _figure(report: Report) -> Figure:
    story = report.story
    zero, end = story.acts[0].began, max(story.watched[1], story.acts[-1].ended)
    figure = Figure(figsize=(14, 6.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1.1))
    upper.set_title(_title(report), loc="left", fontsize=12, color=GREEN if report.kept else RED)
    _orders(upper, story, zero, end)
    _lane(upper, HOST, story.host, zero, end)
    _lane(upper, INSIDE, story.machine, zero, end)
    _service(upper, story, zero, end)
    _beats(upper, story, zero)
    _lease(lower, story, zero)
    upper.set_xlim(-0.5, end - zero + 0.5)
    upper.set_ylim(BEATS - 0.6, ORDERS + 1.25)
    upper.set_yticks(list(LANES), list(LANES.values()))
    lower.set_xlabel("seconds since the first order")
    for axes in (upper, lower):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    return figure


def _title(report: Report) -> str:
    kept = sum(promise.kept for promise in report.promises)
    beats = next(p for p in report.promises if p.name.startswith("heartbeats"))
    return (
        f"hostsync: {kept} of {len(report.promises)} promises kept, "
        f"heartbeats missed: {beats.measured}"
    )


def _orders(axes: Axes, story: Story, zero: float, end: float) -> None:
    """A bar from each order to its end; the dot is the verdict."""
    dots = ORDERS - HEIGHT / 2
    for act in story.acts:
        text, colour = _ENDS.get(act.outcome, (f"✗ {act.outcome}", RED))
        left = act.began - zero
        axes.barh(ORDERS, act.took, left=left, height=HEIGHT, color=_colour(act.release), alpha=0.3)
        axes.text(left + 0.2, ORDERS, text, va="center", color=colour, weight="bold", fontsize=9)
        room = min(act.until, end) - act.began
        asked = _asked(act, columns=int(LINE_COLUMNS * room / (end - zero)))
        axes.text(left, ORDERS + HEIGHT / 2 + 0.06, asked, va="bottom", fontsize=9)
        axes.axvline(left, color=GREY, lw=0.8, zorder=0)
        for event in act.events:
            if event.act == "judge" and event.stage in ("complete", "failed"):
                good = event.stage == "complete"
                axes.plot(event.at - zero, dots, "o", color=GREEN if good else RED, ms=7)


def _asked(act: Act, *, columns: int) -> str:
    return "\n".join((act.release, *wrap(act.title, max(columns, 9))))


def _lane(axes: Axes, at: float, seen: Sequence[Sighting], zero: float, end: float) -> None:
    """A band for each release, for as long as `current` named it."""
    ends = [*(each.at for each in seen[1:]), end]
    for each, until in zip(seen, ends, strict=True):
        left, width = max(each.at, zero) - zero, until - max(each.at, zero)
        if not each.release or width <= 0:
            continue
        axes.barh(at, width, left=left, height=HEIGHT, color=_colour(each.release))
        # A band too thin for its name is named above, where no band is.
        if width > 2.5:
            place, align, ink = (left + 0.2, at), "center", "white"
        else:
            place, align, ink = (left, at + HEIGHT / 2 + 0.03), "bottom", _colour(each.release)
        axes.text(*place, each.release, va=align, color=ink, fontsize=9, weight="bold")


def _service(axes: Axes, story: Story, zero: float, end: float) -> None:
    """Green while systemd holds the service for ready; a cross where it lost its process."""
    ready: float | None = None
    for event in (event for act in story.acts for event in act.events):
        if event.object != "systemd":
            continue
        if event.act == "ready" and ready is None:
            ready = event.at
        elif event.act != "ready" and ready is not None:
            _band(axes, SERVICE, ready - zero, event.at - zero)
            ready = None
    if ready is not None:
        _band(axes, SERVICE, ready - zero, end - zero)
    for crash in filter(None, map(first_crash, story.acts)):
        axes.plot(crash.at - zero, SERVICE, "X", color=RED, ms=9)
        axes.text(
            crash.at - zero, SERVICE + HEIGHT / 2, "crash", ha="center", color=RED, fontsize=9
        )


def _band(axes: Axes, at: float, begun: float, ended: float) -> None:
    axes.barh(at, ended - begun, left=begun, height=HEIGHT * 0.5, color="#9dbfab")


def _beats(axes: Axes, story: Story, zero: float) -> None:
    begun = story.watched[0]
    axes.text(0, BEATS + HEIGHT / 2 + 0.03, "no shim installed yet", color="#777777", fontsize=9)
    for beat in story.beats:
        bad = GREY if beat.start / 1000 < begun else RED
        colour = GREEN if beat.ok else bad
        left, width = beat.start / 1000 - zero, (beat.end - beat.start) / 1000
        if left >= 0:
            axes.barh(BEATS, max(width, 0.15), left=left, height=HEIGHT, color=colour)


def _lease(axes: Axes, story: Story, zero: float) -> None:
    """The age of the Lease as a saw, under the limit that it must not reach."""
    xs: list[float] = []
    ys: list[float] = []
    for begun, ended in renewal_gaps(story):
        xs += [begun - zero, ended - zero]
        ys += [0.0, ended - begun]
    axes.plot(xs, ys, color=INK, lw=0.9)
    axes.fill_between(xs, ys, color=GREY, lw=0)
    axes.axhline(LEASE_SECONDS, color=RED, lw=1, ls="--")
    axes.text(0, LEASE_SECONDS + 0.06, "promised: never older", color=RED, fontsize=9)
    axes.set_ylim(0, max(LEASE_SECONDS * 1.3, *ys, 0))
    axes.set_ylabel("age of the\nLease, s", rotation=0, ha="right", va="center")


def _colour(release: str) -> str:
    return COLOURS.get(release, INK)
