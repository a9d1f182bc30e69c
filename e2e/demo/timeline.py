"""What happened to each order, moment by moment: pure, from what was seen to lines for people."""

from collections.abc import Iterator, Sequence

from e2e.demo.model import Act, Event, Kind, Moment, Sighting, Story


def timeline(story: Story, act: Act) -> tuple[Moment, ...]:
    """The moments of one order, in the order in which they happened."""
    end = Moment(after=act.took, what=f"exit {act.code}", detail=_end(act))
    moments = [*_told(act), *_switches(story, act), *_service(act), end]
    return tuple(sorted(moments, key=lambda moment: moment.after))


def within(sightings: Sequence[Sighting], act: Act) -> tuple[Sighting, ...]:
    """What an observer saw change from an order to the next."""
    return tuple(each for each in sightings if act.began <= each.at < act.until)


def first(act: Act, name: str, stage: str = "complete", *, since: float = 0.0) -> Event | None:
    """The first event of that name in an order, at `since` or later."""
    return next(
        (
            event
            for event in act.events
            if event.act == name and event.stage == stage and event.at >= since
        ),
        None,
    )


def first_crash(act: Act) -> Event | None:
    """When the service first lost its process by itself: no stop had been asked for."""
    asked: Event | None = None
    for event in act.events:
        if event.act == "stopping":
            asked = event
        elif event.act in ("starting", "ready"):
            asked = None
        elif event.act == "exited" and asked is None:
            return event
    return None


def restart_asked(act: Act) -> Event | None:
    """When the trial began: the judge's word, or else systemd's, that the service restarts."""
    return first(act, "restart", "started") or first(act, "stopping")


def ready_again(act: Act) -> Event | None:
    """When the release that was rolled back to was ready."""
    crash = first_crash(act)
    since = crash or first(act, "judge", "failed") or restart_asked(act)
    return None if since is None else first(act, "ready", since=since.at)


def _told(act: Act) -> Iterator[Moment]:
    """What hostsync and its judge told, as far as people want it."""
    if act.busy:
        yield Moment(after=0.0, what="busy", detail=f"turned away {act.busy} times, ordered again")
    for event in act.events:
        after = event.at - act.began
        match event.act, event.stage:
            case "stage", "complete":
                yield Moment(after=after, what="staged", detail=f"digest {event.detail}")
            case "verify", "complete" if act.kind is not Kind.INSTALL:
                yield Moment(after=after, what="runs", detail=event.object)
            case "restart", "started":
                yield Moment(after=after, what="restart", detail="asked for by the judge")
            case "judge", "complete":
                yield Moment(after=after, what="verdict", detail="good")
            case "judge", "failed":
                yield Moment(after=after, what="verdict", detail=f"bad: {event.detail}")
            case "commit", "complete":
                yield Moment(after=after, what="commit", detail=f"{act.release} stays")


def _switches(story: Story, act: Act) -> Iterator[Moment]:
    on_host, inside = within(story.host, act), within(story.machine, act)
    for change in on_host:
        back = act.kind is not Kind.INSTALL and change.release != act.release
        yield Moment(
            after=change.at - act.began,
            what="rollback" if back else "switch",
            detail=f"host: current is {change.release or 'nothing'}",
        )
    for number, change in enumerate(inside):
        cause = on_host[number].at if number < len(on_host) else change.at
        # Both eyes look every few milliseconds, so the machine's may be the first to see it.
        at = max(change.at, cause)
        yield Moment(
            after=at - act.began,
            what="seen inside",
            detail=f"kube1: {change.release or 'nothing'}, {_lag(at - cause)} later",
        )


def _lag(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _service(act: Act) -> Iterator[Moment]:
    crash, again = first_crash(act), ready_again(act)
    if crash is not None:
        yield Moment(after=crash.at - act.began, what="crash", detail=_exit(crash))
    if again is not None and act.outcome == "rolled-back":
        since = f"{again.at - crash.at:.2f} s after the first crash" if crash else "last-good again"
        yield Moment(after=again.at - act.began, what="ready", detail=since)
    elif act.outcome in ("complete", "installed"):
        started = [event for event in act.events if _is_systemds(event, "ready")]
        if started:
            after = started[-1].at - act.began
            yield Moment(after=after, what="ready", detail=f"{act.release} runs")


def _is_systemds(event: Event, name: str) -> bool:
    return event.act == name and event.object == "systemd"


def _exit(crash: Event) -> str:
    return crash.detail.partition("Main process exited, ")[2] or crash.detail


def _end(act: Act) -> str:
    if act.outcome == "refused":
        return f"refused, nothing was switched: {act.reason}"
    return act.outcome.replace("-", " ")
