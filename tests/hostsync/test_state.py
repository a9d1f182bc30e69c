"""What is remembered between orders: bounded, written once, and readable after damage."""

from pathlib import Path

import msgspec
import pytest

from hostsync.errors import DiskError
from hostsync.record import Source
from hostsync.state import HISTORY_LIMIT, KNOWN_BAD_LIMIT, HistoryLine, KnownBad, Outcome, State
from tests.hostsync.world import KillableDisk, Killed


def state(tmp_path: Path) -> State:
    return State(tmp_path / "state", KillableDisk())


def line(order: str, outcome: Outcome = Outcome.COMPLETE) -> HistoryLine:
    return HistoryLine(
        order=order, agent="hostsync", source=Source(), version="1.1.0", digest="1" * 64,
        previous_version="1.0.0", outcome=outcome, started_at=1.0, ended_at=2.0,
    )  # fmt: skip


def bad(digest: str, reason: str = "it crashed") -> KnownBad:
    return KnownBad(digest=digest, version="1.1.0", reason=reason, at=3.0)


def history_file(tmp_path: Path) -> Path:
    return tmp_path / "state/history.jsonl"


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    remembered = state(tmp_path)
    assert remembered.history() == ()
    assert remembered.known_bad() == ()
    assert remembered.find("a") is None
    assert not (tmp_path / "state").exists()


def test_history_is_kept_in_order_and_only_root_may_read_it(tmp_path: Path) -> None:
    for order in "abc":
        state(tmp_path).append(line(order))
    assert [known.order for known in state(tmp_path).history()] == ["a", "b", "c"]
    assert state(tmp_path).find("b") == line("b")
    assert history_file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert history_file(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_an_order_has_one_line_however_often_it_ends(tmp_path: Path) -> None:
    state(tmp_path).append(line("a", Outcome.ROLLED_BACK))
    state(tmp_path).append(line("a", Outcome.COMPLETE))
    assert [known.outcome for known in state(tmp_path).history()] == [Outcome.ROLLED_BACK]


def test_history_is_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    old = (msgspec.json.encode(line(f"o{number}")) for number in range(HISTORY_LIMIT))
    history_file(tmp_path).write_bytes(b"\n".join(old))
    state(tmp_path).append(line("new"))
    orders = [known.order for known in state(tmp_path).history()]
    assert len(orders) == HISTORY_LIMIT
    assert (orders[0], orders[-1]) == ("o1", "new")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe\0", b"{}", b"[]", b'{"order": 7}'])
def test_a_damaged_line_is_left_out_and_the_others_stay(tmp_path: Path, damage: bytes) -> None:
    state(tmp_path).append(line("a"))
    with open(history_file(tmp_path), "ab") as file:
        file.write(damage + b"\n")
    state(tmp_path).append(line("b"))
    assert [known.order for known in state(tmp_path).history()] == ["a", "b"]


def test_a_torn_last_line_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    state(tmp_path).append(line("a"))
    history_file(tmp_path).write_bytes(history_file(tmp_path).read_bytes() + b'{"order": "b"')
    state(tmp_path).append(line("c"))
    assert [known.order for known in state(tmp_path).history()] == ["a", "c"]


def test_what_a_newer_release_wrote_survives_an_older_one(tmp_path: Path) -> None:
    state(tmp_path).append(line("a"))
    newer = history_file(tmp_path).read_bytes().replace(b"{", b'{"mood":"good",', 1)
    newer += newer.replace(b'"a"', b'"b"').replace(b"complete", b"postponed")
    history_file(tmp_path).write_bytes(newer)
    state(tmp_path).append(line("c"))
    assert history_file(tmp_path).read_bytes().startswith(newer)
    assert [known.order for known in state(tmp_path).history()] == ["a", "c"]


def test_a_line_as_long_as_a_file_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    history_file(tmp_path).write_bytes(b"x" * (1 << 20))
    state(tmp_path).append(line("a"))
    assert history_file(tmp_path).stat().st_size < 1024


def test_a_killed_append_leaves_the_old_history(tmp_path: Path) -> None:
    disk = KillableDisk()
    remembered = State(tmp_path / "state", disk)
    remembered.append(line("a"))
    disk.kill_at = disk.changes + 1
    with pytest.raises(Killed):
        remembered.append(line("b"))
    assert [known.order for known in state(tmp_path).history()] == ["a"]


def test_a_bad_release_is_remembered_with_its_newest_reason_until_forgiven(tmp_path: Path) -> None:
    for remembered in (bad("1" * 64), bad("2" * 64), bad("1" * 64, "it hung")):
        state(tmp_path).mark_bad(remembered)
    assert [(b.digest[0], b.reason) for b in state(tmp_path).known_bad()] == [
        ("2", "it crashed"), ("1", "it hung"),
    ]  # fmt: skip
    state(tmp_path).forgive("2" * 64)
    state(tmp_path).forgive("3" * 64)
    assert [b.digest[0] for b in state(tmp_path).known_bad()] == ["1"]
    assert (tmp_path / "state/state.json").stat().st_mode & 0o777 == 0o600


def test_bad_releases_are_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    many = [bad(f"{number:064x}") for number in range(KNOWN_BAD_LIMIT)]
    (tmp_path / "state").mkdir()
    (tmp_path / "state/state.json").write_bytes(msgspec.json.encode({"known_bad": many}))
    state(tmp_path).mark_bad(bad("f" * 64))
    known = state(tmp_path).known_bad()
    assert len(known) == KNOWN_BAD_LIMIT
    assert (known[0].digest, known[-1].digest) == (f"{1:064x}", "f" * 64)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[]", b'{"known_bad": [{}]}'])
def test_a_damaged_memory_of_bad_releases_is_empty_and_can_be_written_again(
    tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/state.json").write_bytes(damage)
    assert state(tmp_path).known_bad() == ()
    state(tmp_path).mark_bad(bad("1" * 64))
    assert len(state(tmp_path).known_bad()) == 1


def test_a_file_that_cannot_be_read_is_told_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    history_file(tmp_path).mkdir(parents=True)
    (tmp_path / "state/state.json").mkdir()
    with pytest.raises(DiskError, match=f"cannot read {history_file(tmp_path)}: Is a directory"):
        state(tmp_path).append(line("a"))
    with pytest.raises(DiskError, match=r"state\.json: Is a directory"):
        state(tmp_path).mark_bad(bad("1" * 64))
