"""What hostsync promises, checked against what was seen: pure, and never content with nothing.

A promise about a span is broken when nothing was seen in that span: silence is no proof.
"""

from collections.abc import Sequence
from itertools import pairwise

from e2e.demo.model import Act, Kind, Promise, Sighting, Story
from e2e.demo.timeline import first_crash, ready_again, restart_asked, within
from e2e.records import missed

CRASH_SECONDS = 3.0
HANG_SECONDS = 3.0
LEASE_SECONDS = 2.0
INSIDE_SECONDS = 1.0
NOT_SEEN = "not seen"


def promises(story: Story) -> tuple[Promise, ...]:
    """Every promise of the demonstration, kept or broken."""
    return (
        _ends(story, Kind.INSTALL, "1.0.0 is installed", "installed", 0),
        _ends(story, Kind.GOOD, "1.1.0 is judged good and stays", "complete", 0),
        _ends(story, Kind.CRASH, "1.2.0, which crashes, is rolled back", "rolled-back", 5),
        _crash(story),
        _ends(story, Kind.HANG, "1.3.0, which hangs, is rolled back", "rolled-back", 5),
        _hang(story),
        _refused(story),
        _seen_inside(story),
        _never_without(story),
        _beats(story),
        _lease(story),
        _tokens(story),
        _ending(story),
    )


def switch_delays(story: Story) -> tuple[float, ...] | None:
    """Seconds from each change on the host to the same inside; None if the two saw not the same.

    An eye looks every few milliseconds, so the machine's may even be the first.
    """
    host, machine = _changes(story, story.host), _changes(story, story.machine)
    if [each.release for each in host] != [each.release for each in machine]:
        return None
    return tuple(max(b.at - a.at, 0.0) for a, b in zip(host, machine, strict=True))


def renewal_gaps(story: Story) -> tuple[tuple[float, float], ...]:
    """The spans between renewals of the Lease while kubelet was watched, ends included."""
    begun, ended = story.watched
    inside = [at for at in story.renewals if begun <= at <= ended]
    return tuple(pairwise([begun, *inside, ended]))


def _changes(story: Story, seen: Sequence[Sighting]) -> list[Sighting]:
    """What was seen to change by upgrades; an install has no machine that follows yet."""
    upgrades = [act for act in story.acts if act.kind is not Kind.INSTALL]
    return [each for act in upgrades for each in within(seen, act)]


def _ends(story: Story, kind: Kind, name: str, outcome: str, code: int) -> Promise:
    act = story.act(kind)
    kept = act is not None and (act.outcome, act.code) == (outcome, code)
    return Promise(name=name, kept=kept, measured=_end(act), limit=f"{outcome}, exit {code}")


def _end(act: Act | None) -> str:
    return NOT_SEEN if act is None else f"{act.outcome}, exit {act.code}"


def _crash(story: Story) -> Promise:
    act = story.act(Kind.CRASH)
    crash = act and first_crash(act)
    again = act and ready_again(act)
    took = again.at - crash.at if crash and again else None
    return _at_most("first crash to last-good ready", took, CRASH_SECONDS)


def _hang(story: Story) -> Promise:
    act = story.act(Kind.HANG)
    asked = act and restart_asked(act)
    again = act and ready_again(act)
    took = again.at - asked.at if asked and again else None
    limit = story.start_seconds + HANG_SECONDS
    return _at_most("hang: restart to last-good ready (start deadline + 3 s)", took, limit)


def _at_most(name: str, seconds: float | None, limit: float) -> Promise:
    return Promise(
        name=name,
        kept=seconds is not None and 0 <= seconds <= limit,
        measured=NOT_SEEN if seconds is None else f"{seconds:.2f} s",
        limit=f"at most {limit:g} s",
        value=seconds,
    )


def _refused(story: Story) -> Promise:
    act = story.act(Kind.BROKEN_INSIDE)
    changed = [] if act is None else [*within(story.host, act), *within(story.machine, act)]
    kept = act is not None and (act.outcome, act.code) == ("refused", 3) and not changed
    switches = "nothing switched" if not changed else f"{len(changed)} changes seen"
    return Promise(
        name="1.4.0, broken in the machine only, is refused before the switch",
        kept=kept,
        measured=f"{_end(act)}, {switches}",
        limit="refused, exit 3, nothing switched",
    )


def _seen_inside(story: Story) -> Promise:
    delays = switch_delays(story)
    worst = max(delays, default=None) if delays is not None else None
    several = f" ({len(delays)} switches and rollbacks)" if delays else ""
    return Promise(
        name=f"the machine sees what the host does{several}",
        kept=worst is not None and worst <= INSIDE_SECONDS,
        measured=NOT_SEEN if worst is None else f"within {worst * 1000:.0f} ms",
        limit=f"within {INSIDE_SECONDS:g} s",
        value=worst,
    )


def _never_without(story: Story) -> Promise:
    """From the first release on `current` names one, at every look, in both places."""
    begun = story.watched[0]
    without = sum(
        each.at >= begun and not each.release
        for seen in (story.host, story.machine)
        for each in seen
    )
    return Promise(
        name="host and machine always have a current release",
        kept=not without and bool(story.host) and bool(story.machine),
        measured="at every look" if not without else f"{without} times none",
        limit="at every look",
        value=float(without),
    )


def _beats(story: Story) -> Promise:
    begun, ended = story.watched
    beats = [beat for beat in story.beats if begun <= beat.start / 1000 <= ended]
    # The last beat may have failed, which the hole between good ones does not show.
    wrong = {beat.n for beat in beats if not beat.ok} | set(missed(beats))
    failed = sum(not beat.ok for beat in beats)
    late = f": {failed} failed, {len(wrong) - failed} late" if wrong else ""
    covered = bool(beats) and beats[-1].start / 1000 >= max(act.ended for act in story.acts)
    return Promise(
        name="heartbeats missed, across every switch and rollback",
        kept=covered and not wrong,
        measured=f"{len(wrong)} of {beats[-1].n - beats[0].n + 1}{late}" if covered else NOT_SEEN,
        limit="0",
        value=float(len(wrong)) if covered else None,
    )


def _lease(story: Story) -> Promise:
    gaps = [b - a for a, b in renewal_gaps(story)]
    longest = max(gaps) if len(gaps) > 1 else None
    return _at_most("longest gap in the Lease, as the API server stored it", longest, LEASE_SECONDS)


def _tokens(story: Story) -> Promise:
    used = sum(each.used for each in story.tokens)
    return Promise(
        name="tokens the API server refused",
        kept=bool(used) and story.refusals == 0,
        measured=f"{story.refusals} ({used} tokens used)" if used else NOT_SEEN,
        limit="0",
        value=float(story.refusals),
    )


def _ending(story: Story) -> Promise:
    ending = story.ending
    want = (0, "1.1.0", "1.1.0", "active", ())
    seen = (ending.exit_code, ending.release, ending.inside, ending.active, ending.problems)
    measured = f"host {ending.release}, kube1 {ending.inside}, {ending.active}"
    if ending.problems:
        measured += f", {ending.problems[0]}"
    return Promise(
        name="in the end all run 1.1.0 and status knows no problem",
        kept=seen == want,
        measured=measured,
        limit="host 1.1.0, kube1 1.1.0, active",
    )
