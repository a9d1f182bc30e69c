"""What the lab writes down is read as what it means, in either form the journal may have."""

import pytest

from e2e.demo import reading
from e2e.demo.model import Ending, Event, Sighting, TokenUse
from e2e.records import Entry, Exchange
from tests.e2e_demo.stories import beat

LEASE = f"{reading.LEASE_PATH}/kube1"


def entry(message: str, time: float = 7.0) -> Entry:
    return Entry(time=time, unit="hostsync-judge.service", priority=6, message=message)


def exchange(
    verb: str, status: int, *, path: str = LEASE, agent: str = "", token: str = ""
) -> Exchange:
    return Exchange(
        time=1.0, took=0.0, verb=verb, path=path, status=status, agent=agent, token=token
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "09:49:56.920  restart started  hostsync.service  1.1.0",
            Event(
                at=7.0, act="restart", stage="started", object="hostsync.service", detail="1.1.0"
            ),
        ),
        (
            "09:50:00.378  judge  1.1.0  good",
            Event(at=7.0, act="judge", object="1.1.0", detail="good"),
        ),
        (
            "09:50:00.378  roll back failed  1.0.0  it is gone",
            Event(at=7.0, act="roll back", stage="failed", object="1.0.0", detail="it is gone"),
        ),
        (
            '{"event":{"at":3.5,"act":"judge","stage":"failed","object":"1.2.0","detail":"ended"}}',
            Event(at=3.5, act="judge", stage="failed", object="1.2.0", detail="ended"),
        ),
        ('{"act":"commit","object":"1.1.0"}', Event(at=7.0, act="commit", object="1.1.0")),
    ],
)
def test_the_judge_s_lines_are_read_as_text_and_as_json(message: str, expected: Event) -> None:
    assert reading.judged([entry(message)]) == (expected,)


@pytest.mark.parametrize("message", ["Started hostsync-judge.service", "{", "[1]", "", "{}"])
def test_lines_that_tell_no_event_are_passed_over(message: str) -> None:
    assert reading.judged([entry(message)]) == ()


def test_systemd_s_words_about_the_service_become_its_acts() -> None:
    said = [
        "Stopping hostsync.service - hostsync: keeps this host's agent and its machines in step...",
        "hostsync.service: Deactivated successfully.",
        "Starting hostsync.service - hostsync: keeps this host's agent and its machines in step...",
        "hostsync.service: Main process exited, code=exited, status=1/FAILURE",
        "Started hostsync.service - hostsync: keeps this host's agent and its machines in step.",
    ]
    acts = [event.act for event in reading.served(entry(message) for message in said)]
    assert acts == ["stopping", "starting", "exited", "ready"]


def test_what_a_command_printed_beside_json_is_passed_over() -> None:
    text = 'warning\n{"event":{"at":1,"act":"stage","stage":"started"}}\n3\n{"verdict":{}}\n'
    lines = reading.json_lines(text)
    assert reading.told(lines) == (Event(at=1.0, act="stage", stage="started"),)
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        (
            {"verdict": {"outcome": "rolled-back", "reason": "it ended"}},
            5,
            ("rolled-back", "it ended"),
        ),
        ({"verdict": {"outcome": "complete"}}, 0, ("complete", "")),
        ({"error": {"code": "refused", "message": "it fails"}}, 3, ("refused", "it fails")),
        ({"error": {"code": "busy", "message": "judge holds"}}, 4, ("busy", "judge holds")),
        ({"installed": {"version": "1.0.0"}}, 0, ("installed", "")),
        ({"surprise": 1}, 9, ("failed", "exit status 9")),
    ],
)
def test_an_order_s_end_is_hostsync_s_word(
    line: reading.Line, code: int, expected: tuple[str, str]
) -> None:
    assert reading.outcome_of([{"event": {}}, line], code) == expected


def test_sightings_keep_nothing_for_nothing_and_leave_out_an_unfinished_line() -> None:
    assert reading.sightings("1.5 \n2.25 1.0.0\n3.0 1.1") == (
        Sighting(at=1.5, release=""),
        Sighting(at=2.25, release="1.0.0"),
    )


def test_the_ending_is_what_status_says() -> None:
    status = {
        "current": "green",
        "active": "active",
        "slots": [{"name": "blue", "version": "1.0.0"}, {"name": "green", "version": "1.1.0"}],
        "machines": [{"name": "kube1", "release": "1.0.0"}],
        "problems": ["kube1 is skewed"],
    }
    assert reading.ending_of([{"status": status}], 1) == Ending(
        exit_code=1, release="1.1.0", inside="1.0.0", active="active", problems=("kube1 is skewed",)
    )
    assert reading.ending_of([], 127).release == ""


def test_only_stored_leases_count_as_renewals() -> None:
    stored = [exchange("POST", 201), exchange("PUT", 200)]
    others = [
        exchange("GET", 200),
        exchange("PUT", 409),
        exchange("PUT", 401),
        exchange("PUT", 200, path="/api/v1/nodes/kube1"),
    ]
    assert list(reading.renewals([*others, *stored])) == stored


def test_tokens_are_counted_for_the_release_that_fetched_them() -> None:
    agent = reading.AGENT_PREFIX
    imds = [
        exchange("GET", 200, agent=f"{agent}1.0.0", token="a"),
        exchange("GET", 200, agent=f"{agent}1.1.0", token="b"),
        exchange("GET", 200, agent=f"{agent}1.1.0", token="self-test"),
        exchange("GET", 503, agent=f"{agent}1.1.0", token="none"),
    ]
    stored = [exchange("PUT", 200, token=token) for token in ("a", "a", "b")]
    beats = [beat(1, release="1.0.0"), beat(2, ok=False), beat(3), beat(4)]
    assert reading.token_uses(beats, imds, stored) == (
        TokenUse(release="1.0.0", beats=1, fetched=1, used=1),
        TokenUse(release="1.1.0", beats=2, fetched=2, used=1),
    )
