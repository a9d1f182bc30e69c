"""What is done next: oldest first, one at a time, never over an end, nothing of others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hostsync.model import Digest
from hostsync.operations.agenda import Agenda, Begin, Delete, Known, Tell, agenda
from hostsync.operations.demand import Demand, Upgrade
from hostsync.operations.operation import TERMINAL, Operation, Target, rfc3339
from hostsync.operations.report import Cause, Report, failed, status_patch, succeeded, under_way
from hostsync.operations.selection import Selector
from hostsync.release.url import DownloadUrl
from tests.operations.specimens import (
    DIGEST,
    ME,
    PHASES,
    PROPERTY,
    URL,
    a_selection,
    an_operation,
    merged,
    stored,
)

NOW = 1_800_000_000.0
DEMAND = Upgrade(agent="hostsync", url=DownloadUrl.parse(URL), digest=Digest.parse(DIGEST))
REFUSED = failed(Cause.INVALID_PARAMETERS, "no")
DONE = succeeded("done")
THEIRS = Selector(matchLabels={"ring": "9"})


def read(operation: Operation) -> Demand | Report:
    return REFUSED if operation.parameters.get("bad") else DEMAND


def of(*operations: Operation, now: float = NOW, **known: object) -> Agenda:
    return agenda(operations, ME, Known(**known), read, now)  # type: ignore[arg-type]


def begun(found: Agenda) -> list[str]:
    return [step.operation.name for step in found.steps if isinstance(step, Begin)]


def told(found: Agenda) -> dict[str, Report]:
    return {step.operation.name: step.report for step in found.steps if isinstance(step, Tell)}


def ended(name: str, ago: float, **changes: object) -> Operation:
    given: dict[str, object] = {"phase": "Complete", "completed": rfc3339(NOW - ago), "ttl": 60}
    return an_operation(name, **given | changes)


def test_the_oldest_is_begun_and_the_others_say_what_they_wait_for() -> None:
    new = an_operation("a", created="2026-11-30T11:00:00Z")
    old = an_operation("b", created="2026-11-30T10:00:00Z")
    found = of(new, old)
    assert begun(found) == ["b"]
    assert told(found)["a"].phase == "Pending"
    assert "operation b" in told(found)["a"].message


def test_of_two_that_are_as_old_the_first_by_name_is_begun() -> None:
    assert begun(of(an_operation("b"), an_operation("a"))) == ["a"]


def test_what_cannot_be_meant_is_refused_at_once_however_busy_the_host_is() -> None:
    found = of(an_operation("bad", parameters={"bad": "1"}), an_operation("z"), busy="busy")
    assert told(found)["bad"] == REFUSED
    assert told(found)["z"].message == "busy"


def test_a_busy_host_begins_nothing_and_says_why() -> None:
    found = of(an_operation(), busy="order 1 comes first")
    assert begun(found) == []
    assert (told(found)["op"].phase, told(found)["op"].message) == (
        "Pending", "order 1 comes first",
    )  # fmt: skip


def test_one_that_was_turned_away_waits_and_lets_no_younger_one_pass() -> None:
    old, new = an_operation("a"), an_operation("b", created="2026-11-30T12:00:00Z")
    found = of(old, new, turned_away={"uid-a": "hostsync upgrade holds the lock"})
    assert begun(found) == []
    assert told(found)["a"].message == "hostsync upgrade holds the lock"
    assert "operation a" in told(found)["b"].message


def test_the_end_that_a_history_knows_wins_over_everything() -> None:
    operation = an_operation(parameters={"bad": "1"})
    found = of(
        operation, ended={"uid-op": DONE}, moving={"uid-op": "x"}, turned_away={"uid-op": "y"}
    )
    assert told(found) == {"op": DONE}


def test_one_that_moves_is_reported_on_and_not_begun_again() -> None:
    found = of(an_operation(), moving={"uid-op": "judging the release"})
    assert told(found) == {"op": under_way("judging the release")}


def test_an_end_belongs_to_a_uid_and_not_to_a_name() -> None:
    assert begun(of(an_operation(uid="new"), ended={"uid-op": DONE})) == ["op"]


def test_what_is_told_already_is_not_told_again() -> None:
    operation = an_operation()
    report = under_way("staging")
    patch = status_patch(operation, report, NOW)["status"]
    assert isinstance(patch, dict)
    after = stored(operation, patch)
    assert of(after, moving={"uid-op": "staging"}).steps == ()
    assert told(of(after, moving={"uid-op": "judging"})) == {"op": under_way("judging")}


def test_operations_of_other_machines_are_left_alone() -> None:
    theirs = an_operation(machine="host-2", ttl=1, phase="Complete", completed=rfc3339(NOW - 99))
    nobodys = an_operation("b", machine="", selector=None)
    assert of(theirs, an_operation("c", machine="host-2"), nobodys) == Agenda()


def test_a_selector_is_held_against_the_labels_of_the_node_once_they_are_known() -> None:
    mine, theirs = a_selection("a"), a_selection("b", selector=THEIRS)
    assert begun(of(mine, theirs, labels={"ring": "1"})) == ["a"]
    assert of(mine, labels=None) == Agenda()


def test_a_host_that_takes_no_selectors_takes_none() -> None:
    me = replace(ME, selectors=False)
    assert agenda([a_selection()], me, Known(labels={}), read, NOW) == Agenda()


def test_an_entry_that_has_ended_is_left_alone_while_others_go_on() -> None:
    mine = Target(machineRef=ME.machine, phase="Failed")
    theirs = Target(machineRef="host-2", phase="Failed")
    assert of(a_selection(targets=(mine, theirs)), labels={}) == Agenda()
    assert begun(of(a_selection(targets=(theirs,)), labels={})) == ["op"]


def test_an_operation_is_deleted_once_its_time_after_its_end_has_passed() -> None:
    found = of(ended("a", 60), ended("b", 59), ended("c", 10), ended("d", 99, ttl=None))
    assert [step.operation.name for step in found.steps if isinstance(step, Delete)] == ["a"]
    assert found.due == NOW + 1


def test_one_without_an_end_or_with_one_that_is_no_time_is_kept() -> None:
    assert of(ended("a", 99, completed=""), ended("b", 99, completed="soon")) == Agenda()


def test_what_several_machines_share_is_nobodys_to_delete() -> None:
    shared = ended("a", 999, machine="", selector=Selector())
    assert of(shared, labels={}) == Agenda()


OPERATIONS = st.lists(
    st.builds(
        lambda name, created, phase, machine, bad, over: an_operation(
            name, created=created, phase=phase, machine=machine, ttl=5,
            parameters={"bad": "1"} if bad else {}, selector=None if machine else Selector(),
            completed=over,
        ),
        st.sampled_from("abcdef"), st.sampled_from(["2026-01-01", "2026-02-01"]), PHASES,
        st.sampled_from([ME.machine, ME.machine, "host-2", ""]), st.booleans(),
        st.sampled_from(["", rfc3339(NOW - 3), rfc3339(NOW - 9)]),
    ),
    max_size=6, unique_by=lambda each: each.uid,
)  # fmt: skip
UIDS = st.sampled_from([f"uid-{name}" for name in "abcdef"])
KNOWN = st.builds(
    Known, moving=st.dictionaries(UIDS, st.just("judging")), busy=st.sampled_from(["", "", "busy"]),
    ended=st.dictionaries(UIDS, st.just(DONE)), labels=st.sampled_from([None, {}]),
    turned_away=st.dictionaries(UIDS, st.just("lock"), max_size=1),
)  # fmt: skip


@PROPERTY
@given(OPERATIONS, KNOWN)
def test_whatever_there_is_no_work_is_done_twice_over_an_end_or_for_others(
    operations: list[Operation], known: Known
) -> None:
    found = agenda(operations, ME, known, read, NOW)
    assert len(begun(found)) <= (0 if known.busy else 1)
    for step in found.steps:
        operation = step.operation
        assert operation.machine in (ME.machine, "")
        match step:
            case Begin():
                done = known.moving.keys() | known.ended.keys() | known.turned_away.keys()
                assert operation.uid not in done
                assert not operation.is_over
            case Tell():
                assert operation.phase not in TERMINAL
            case Delete():
                assert operation.is_over
                assert operation.machine == ME.machine


@PROPERTY
@given(OPERATIONS, KNOWN)
def test_telling_all_of_an_agenda_leaves_nothing_to_tell(
    operations: list[Operation], known: Known
) -> None:
    named = [each for each in operations if each.machine]
    first = agenda(named, ME, known, read, NOW)
    after = {each.uid: each for each in named}
    for step in first.steps:
        if isinstance(step, Tell):
            status = merged({}, status_patch(step.operation, step.report, NOW)["status"])
            assert isinstance(status, dict)
            read_back = stored(step.operation, status)
            after[step.operation.uid] = replace(
                read_back, parameters=step.operation.parameters, ttl=step.operation.ttl
            )
    second = agenda(after.values(), ME, known, read, NOW)
    assert told(second) == {}
    assert begun(second) == begun(first)
