"""What people and machines are shown: complete, one line where one is meant, never forged."""

import json
from pathlib import Path

import msgspec
import pytest

from hostsync import render
from hostsync.activation import switch
from hostsync.activation.host import Event
from hostsync.activation.plan import NothingToDo, Plan
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.errors import Failed, MachineError, Reason, Refused
from hostsync.model import SlotKind
from hostsync.state import HistoryLine, Outcome
from hostsync.status import AgentStatus, gather
from tests.hostsync.world import World, installed, make_world

FORGED = "no luck\n00:00:00.000  commit  9.9.9\x1b[2K"
SPELT = r"no luck\n00:00:00.000  commit  9.9.9\x1b[2K"


@pytest.fixture
def host(tmp_path: Path) -> World:
    return installed(make_world(tmp_path, SlotKind.BUNDLE))


def order(world: World, version: str, behaviour: str = "good") -> HistoryLine:
    switch.upgrade(world.host(), world.candidate(version, behaviour), Options())
    line = settle(world.host())
    assert line is not None
    return line


def test_status_tells_slots_marks_machines_and_the_last_order(host: World) -> None:
    order(host, "1.1.0")
    status = gather(host.host())
    text = render.status_text(status)
    assert "hostsync.service is active" in text
    assert [line.split()[-1] for line in text.splitlines()[1:3]] == ["last-good", "current"]
    assert "kube1  sees 1.1.0 by bind, in step" in text
    assert "1.0.0 -> 1.1.0  complete" in text
    assert "problem" not in text
    assert int(status.exit_code) == 0


def test_status_as_json_can_be_read_back_whole(host: World) -> None:
    order(host, "1.1.0", "crash")
    status = gather(host.host())
    line = render.to_json({"status": status})
    assert "\n" not in line
    found = json.loads(line)["status"]
    assert msgspec.convert(found, AgentStatus) == status
    assert found["current"] == "blue"
    assert found["last_order"]["outcome"] == "rolled-back"


def test_status_during_a_trial_tells_the_order_and_exits_with_in_progress(host: World) -> None:
    switch.upgrade(host.host(), host.candidate("1.1.0"), Options())
    status = gather(host.host())
    assert "1.1.0, switched" in render.status_text(status)
    assert int(status.exit_code) == 7


def test_status_tells_what_is_wrong_and_fails(host: World) -> None:
    host.machines.bound.clear()
    host.inside("kube1", host.layout.current).unlink()
    host.systemd.active = "failed"
    status = gather(host.host())
    text = render.status_text(status)
    assert "NOT in step" in text
    assert "problem: machine kube1 sees no release" in text
    assert "problem: hostsync.service is failed" in text
    assert int(status.exit_code) == 1


def test_status_of_a_host_without_a_release_says_so(tmp_path: Path) -> None:
    status = gather(make_world(tmp_path, SlotKind.BUNDLE).host())
    assert "problem: hostsync is not installed in" in render.status_text(status)
    assert [slot.condition for slot in status.slots] == ["empty", "empty"]


def test_an_unreadable_record_or_history_is_a_problem_and_no_crash(host: World) -> None:
    state = host.top / "state/hostsync"
    (state / "record.json").mkdir(parents=True)
    (state / "history.jsonl").mkdir()
    problems = gather(host.host()).problems
    assert any("record.json: Is a directory" in problem for problem in problems)
    assert any("history.jsonl: Is a directory" in problem for problem in problems)


def test_a_plan_is_told_step_by_step_and_as_data(host: World) -> None:
    plan = switch.preflight(host.host(), host.candidate("1.1.0"), Options())
    assert isinstance(plan, Plan)
    lines = render.plan_text(plan).splitlines()
    assert len(lines) == len(plan.steps) + 1
    assert lines[1].split()[:2] == ["1", "stage"]
    value = json.loads(render.to_json(render.plan_value(plan)))
    assert (value["previous"], value["target"]) == ("1.0.0", "green")
    assert [step["act"] for step in value["steps"]] == [str(step.act) for step in plan.steps]


def test_nothing_to_do_is_told_with_its_reason() -> None:
    nothing = NothingToDo(why="it is so already")
    assert render.plan_text(nothing) == "nothing to do: it is so already"
    assert render.plan_value(nothing) == {"nothing_to_do": "it is so already", "steps": []}


def test_an_event_is_one_line_whatever_it_holds() -> None:
    event = Event(at=1.5, act="judge", stage="failed", object="1.1.0", detail=FORGED)
    assert render.event_line(event) == f"00:00:01.500  judge failed  1.1.0  {SPELT}"
    complete = Event(at=86399.9994, act="link", stage="complete", object="/x", detail="")
    assert render.event_line(complete) == "23:59:59.999  link  /x"


def line(outcome: Outcome, reason: str = FORGED, ended_at: float = 12.5) -> HistoryLine:
    return msgspec.convert(
        {
            "order": "0badcafe", "agent": "hostsync", "source": {}, "version": "1.1.0",
            "digest": "1" * 64, "previous_version": "1.0.0", "outcome": outcome,
            "reason": reason, "started_at": 10.0, "ended_at": ended_at,
        },
        HistoryLine,
    )  # fmt: skip


def test_an_ended_order_is_one_line_whatever_it_holds() -> None:
    assert render.history_text(line(Outcome.ROLLED_BACK)) == (
        f"1970-01-01T00:00:12Z  0badcafe  1.0.0 -> 1.1.0  rolled-back  2.5 s  {SPELT}"
    )


@pytest.mark.parametrize("ended_at", [1e300, -1e300, 1e15])
def test_an_impossible_time_in_a_damaged_history_is_shown_all_the_same(ended_at: float) -> None:
    assert "0badcafe" in render.history_text(line(Outcome.COMPLETE, "", ended_at))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_sentence(outcome: Outcome) -> None:
    said = render.verdict_text(line(outcome))
    assert "\n" not in said
    assert {
        Outcome.COMPLETE: "is current, judged good",
        Outcome.ROLLED_BACK: "1.0.0 runs again",
        Outcome.NOT_RESTORED: "NOT restored",
        Outcome.FAILED: "ended failed",
        Outcome.INTERRUPTED: "ended interrupted",
    }[outcome] in said


def test_evidence_is_indented_and_spelt_out() -> None:
    assert render.evidence_text(["a", "b\x1b[31m"]) == "    a\n    b\\x1b[31m"


def test_an_error_is_told_as_a_line_and_as_data() -> None:
    refused = Refused(Reason.NO_SPACE, FORGED, remedy="free space")
    assert render.error_line(refused) == f"hostsync: {SPELT}; free space"
    assert render.error_value(refused)["reason"] == "no-space"
    assert render.error_value(refused)["exit"] == 3
    value = render.error_value(MachineError("a path /\udcff"))
    assert json.loads(render.to_json(value))["message"] == r"a path /\udcff"
    assert (value["code"], value["exit"]) == ("machine", 1)
    assert "reason" not in render.error_value(Failed("x"))
