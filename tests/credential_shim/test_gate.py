"""The gate: every combination against an oracle written from the rules, and its waiting."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credential_shim import seals
from credential_shim.clock import Deadline
from credential_shim.errors import SkewError
from credential_shim.fastpath import Release, seals_agree
from credential_shim.gate import GRACE_SECONDS, Act, Gate, View, age_of, decide, observe
from credential_shim.seals import Defect, Seal, parse_seal
from tests.credential_shim.fakes import FakeClock
from tests.credential_shim.slot_root import seal_bytes


def seal(version: str, protocol: int = 1, digest: str = "a") -> Seal:
    made = parse_seal(seal_bytes(version, digest, protocol))
    assert made is not None
    return made


OWN = seal("1.5.0")
READINGS: dict[str, Seal | Defect] = {
    "equal": seal("1.5.0"),
    "older": seal("1.4.0", digest="b"),
    "newer": seal("1.6.0", digest="c"),
    "rebuilt": seal("1.5.0", digest="d"),
    "newer protocol": seal("2.0.0", protocol=2, digest="e"),
    "missing": Defect("/s", "is missing", absent=True),
    "unreadable": Defect("/s", "cannot be read: Permission denied"),
    "malformed": Defect("/s", "is malformed"),
    "oversized": Defect("/s", "is longer than 4096 bytes"),
}
DEFECTS = {"missing", "unreadable", "malformed", "oversized"}


def oracle(
    own: str, current: str, wanted: str | None, *, young: bool, policy: bool, may_reexec: bool
) -> str:
    """The rules of DESIGN §7, written over names instead of seals."""
    names = {own, current, *([] if wanted is None else [wanted])}
    if own == "missing" and current not in DEFECTS:
        return Act.REEXEC if may_reexec else Act.WAIT
    if names & DEFECTS:
        return Act.REFUSE
    if names == {own}:
        return Act.SERVE
    if may_reexec and wanted in (None, current):
        return Act.REEXEC
    protocols = {2 if name == "newer protocol" else 1 for name in names}
    if policy or (young and len(protocols) == 1):
        return Act.SERVE_WITH_WARNING
    return Act.WAIT


@pytest.mark.parametrize("own", READINGS)
def test_every_combination_of_seals_ages_and_policies_follows_the_rules(own: str) -> None:
    ages = (None, 0.0, GRACE_SECONDS - 0.1, GRACE_SECONDS, 86400.0)
    combinations = itertools.product(
        READINGS, [None, *READINGS], ages, (False, True), (False, True)
    )
    for current, wanted, age, policy, may_reexec in combinations:
        view = View(
            own=READINGS[own],
            current=READINGS[current],
            wanted=None if wanted is None else READINGS[wanted],
            age=age,
        )
        young = age is not None and age < GRACE_SECONDS
        expected = oracle(own, current, wanted, young=young, policy=policy, may_reexec=may_reexec)
        act, reason = decide(view, serve_on_skew=policy, may_reexec=may_reexec)
        assert act == expected, (own, current, wanted, age, policy, may_reexec)
        assert bool(reason) is (act != Act.SERVE)
        assert "\n" not in reason


@settings(max_examples=50)
@given(
    raws=st.lists(
        st.sampled_from([seal_bytes("1.0.0"), seal_bytes("1.0.1")]), min_size=2, max_size=3
    ),
    age=st.one_of(st.none(), st.floats(0, 1e9)),
)
def test_without_policy_or_grace_only_equal_bytes_are_served(
    raws: list[bytes], age: float | None
) -> None:
    own, current, *wanted = [made for raw in raws if (made := parse_seal(raw)) is not None]
    view = View(own=own, current=current, wanted=wanted[0] if wanted else None, age=age)
    act, _ = decide(view, serve_on_skew=False, may_reexec=False)
    assert (act is Act.SERVE) is (len(set(raws)) == 1)
    if act is Act.SERVE_WITH_WARNING:
        assert age is not None
        assert age < GRACE_SECONDS


def test_a_refusal_names_both_versions_and_the_remedy() -> None:
    view = View(own=seal("1.0.0"), current=seal("1.0.0"), wanted=seal("1.1.0"), age=None)
    _, reason = decide(view, serve_on_skew=False, may_reexec=True)
    assert "1.0.0" in reason
    assert "the host selects 1.1.0" in reason
    assert "hostsync sync" in reason


def test_builds_of_one_version_are_told_apart_by_digest() -> None:
    view = View(own=OWN, current=READINGS["rebuilt"], wanted=None, age=None)
    _, reason = decide(view, serve_on_skew=False, may_reexec=False)
    assert "aaaaaaaaaaaa" in reason
    assert "dddddddddddd" in reason


@pytest.mark.parametrize(
    ("changes", "age"),
    [
        ([], None),
        ([900.0], 100.0),
        ([900.0, 990.0], 10.0),
        ([1004.0], 0.0),
        ([1006.0], None),
        ([1006.0, 900.0], 100.0),
    ],
)
def test_age_is_of_the_latest_switch_that_is_not_in_the_future(
    changes: list[float], age: float | None
) -> None:
    assert age_of(changes, 1000.0) == age


@pytest.fixture
def release(tmp_path: Path) -> Release:
    for slot, version in (("blue", "1.0.0"), ("green", "1.1.0")):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "RELEASE").write_bytes(seal_bytes(version))
    (tmp_path / "current").symlink_to("blue")
    return Release(str(tmp_path / "blue"))


def gate(
    release: Release, clock: FakeClock, *, serve: bool = False, takes_over: bool | None = None
) -> Gate:
    """A gate whose re-exec is barred (None), fails (False) or leaves (True: raises Left)."""

    def reexec() -> None:
        if not takes_over:
            raise FileNotFoundError(2, "No such file or directory")
        raise LeftError

    barred = takes_over is None
    return Gate(release, clock, serve_on_skew=serve, reexec=None if barred else reexec)


class LeftError(Exception):
    """Stands for an execve, which does not return."""


def make_old(release: Release, clock: FakeClock) -> None:
    """Have the clock a day past every switch."""
    view = observe(release, 0.0)
    assert view.age is None
    clock.wall = Path(release.current_link).lstat().st_mtime + 86400


def point(release: Release, slot: str) -> None:
    link = Path(release.current_link)
    link.unlink()
    link.symlink_to(slot)


def test_the_gate_opens_for_the_selected_release(release: Release) -> None:
    clock = FakeClock()
    assert gate(release, clock).wait(Deadline(clock, clock.steady + 7)) == ""
    assert clock.slept == []
    assert seals_agree(release)


def test_the_shim_behind_current_takes_over(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    with pytest.raises(LeftError):
        gate(release, clock, takes_over=True).wait(Deadline(clock, clock.steady + 7))


def test_a_shim_whose_release_was_taken_away_while_it_loaded_has_current_take_over(
    release: Release,
) -> None:
    clock = FakeClock()
    point(release, "green")
    Path(release.own_seal).unlink()
    with pytest.raises(LeftError):
        gate(release, clock, takes_over=True).wait(Deadline(clock, clock.steady + 7))


def test_one_that_may_not_hand_over_waits_for_the_release_that_comes_back(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    own = Path(release.own_seal)
    own.unlink()

    def bring_back() -> None:
        own.write_bytes(seal_bytes("0.9.0"))

    clock.on_sleep = bring_back
    clock.wall = Path(release.current_link).lstat().st_mtime
    assert "serving" in gate(release, clock).wait(Deadline(clock, clock.steady + 7))
    assert len(clock.slept) == 1


def test_a_takeover_that_fails_is_waited_out_and_refused_with_its_cause(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    make_old(release, clock)
    with pytest.raises(SkewError, match=r"cannot be run: No such file.*1\.0\.0.*1\.1\.0"):
        gate(release, clock, takes_over=False).wait(Deadline(clock, clock.steady + 7))
    assert sum(clock.slept) == pytest.approx(5.0, abs=0.1)


def test_a_takeover_that_fails_does_not_cost_the_grace_of_a_young_switch(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    clock.wall = Path(release.current_link).lstat().st_mtime + 10
    warning = gate(release, clock, takes_over=False).wait(Deadline(clock, clock.steady + 7))
    assert "10 s old" in warning
    assert clock.slept == []


def test_convergence_during_the_wait_opens_the_gate(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    make_old(release, clock)
    clock.on_sleep = lambda: point(release, "blue") if len(clock.slept) == 3 else None
    assert gate(release, clock).wait(Deadline(clock, clock.steady + 7)) == ""
    assert len(clock.slept) == 3


def test_waiting_never_passes_the_deadline(release: Release) -> None:
    clock = FakeClock()
    point(release, "green")
    make_old(release, clock)
    with pytest.raises(SkewError):
        gate(release, clock).wait(Deadline(clock, clock.steady + 2))
    assert sum(clock.slept) == pytest.approx(2.0, abs=0.06)


def test_a_young_switch_serves_at_once_with_a_warning(release: Release) -> None:
    clock = FakeClock()
    Path(release.wanted).write_bytes(seal_bytes("1.1.0"))
    clock.wall = Path(release.wanted).lstat().st_mtime + 10
    warning = gate(release, clock).wait(Deadline(clock, clock.steady + 7))
    assert "10 s old" in warning
    assert clock.slept == []


def test_the_serve_policy_serves_at_once_with_a_warning(release: Release) -> None:
    clock = FakeClock()
    Path(release.wanted).write_bytes(seal_bytes("2.0.0", protocol=2))
    make_old(release, clock)
    assert "--on-skew=serve" in gate(release, clock, serve=True).wait(Deadline(clock, 1e9))
    assert clock.slept == []


@pytest.mark.parametrize("current", ["blue", "green", "gone"])
@pytest.mark.parametrize("wanted", [None, "1.0.0", "1.1.0", "damaged"])
@pytest.mark.parametrize("protocol", [1, 2])
def test_the_fast_path_passes_exactly_where_the_gate_serves_without_a_word(
    release: Release, current: str, wanted: str | None, protocol: int
) -> None:
    point(release, current)
    Path(release.own_seal).write_bytes(seal_bytes("1.0.0", protocol=protocol))
    if wanted is not None:
        raw = b"?" if wanted == "damaged" else seal_bytes(wanted, protocol=protocol)
        Path(release.wanted).write_bytes(raw)
    act, _ = decide(observe(release, 0.0), serve_on_skew=False, may_reexec=False)
    assert seals_agree(release) is (act is Act.SERVE)


@pytest.mark.parametrize("where", ["own", "current", "wanted"])
@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        ("missing", "is missing"),
        ("directory", "is not a regular file"),
        ("link", "cannot be read"),
        ("fifo", "is not a regular file"),
        ("oversized", "is longer than"),
        ("malformed", "is malformed"),
    ],
)
def test_a_damaged_seal_is_refused_at_once_with_its_own_cause_even_under_serve(
    release: Release, where: str, damage: str, cause: str
) -> None:
    if (where, damage) == ("wanted", "missing"):
        where = "own"  # outside mirrors WANTED is absent, and no damage
    clock = FakeClock()
    if where == "current":
        point(release, "green")
    paths = {
        "own": release.own_seal,
        "current": f"{release.current_link}/RELEASE",
        "wanted": release.wanted,
    }
    path = Path(paths[where])
    hurt(path, damage)
    with pytest.raises(SkewError, match=cause) as caught:
        gate(release, clock, serve=True, takes_over=True).wait(Deadline(clock, 1e9))
    assert caught.value.exit_code == 3
    assert str(path) in caught.value.message
    assert clock.slept == []
    assert not seals_agree(release)


def hurt(path: Path, damage: str) -> None:
    path.unlink(missing_ok=True)
    match damage:
        case "directory":
            path.mkdir()
        case "link":
            target = path.with_name("elsewhere")
            target.write_bytes(seal_bytes())
            path.symlink_to(target)
        case "fifo":
            os.mkfifo(path)
        case "oversized":
            path.write_bytes(seal_bytes() + b"note=x\n" * 1000)
        case "malformed":
            path.write_bytes(seal_bytes()[:-1])


VALID = seal_bytes()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        VALID[:-1],
        VALID.replace(b"\n", b"\r\n"),
        VALID.replace(b"agent", b"Agent"),
        VALID.replace(b"protocol=1", b"protocol=01"),
        VALID.replace(b"protocol=1", b"protocol=x"),
        VALID.replace(b"protocol=1", b"protocol=12345"),
        VALID.replace(b"aaaa", b"AAAA"),
        VALID.replace(b"a" * 64, b"a" * 63),
        VALID.replace(b"version=1.0.0", b"version="),
        VALID.replace(b"version=1.0.0", b"version=1 0"),
        VALID.replace(b"version=1.0.0", b"version=1\x00"),
        b"version=1.0.0\n" + VALID,
        VALID + b"junk\n",
        VALID + b"\n",
    ],
)
def test_bytes_that_are_no_seal_are_malformed(raw: bytes) -> None:
    assert parse_seal(raw) is None


def test_a_seal_of_a_later_release_with_more_lines_is_a_seal() -> None:
    made = parse_seal(VALID + b"channel=stable\n")
    assert made is not None
    assert made.raw != VALID


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_raise(raw: bytes) -> None:
    made = parse_seal(raw)
    assert made is None or made.raw == raw


def test_the_limit_is_a_limit_on_bytes(tmp_path: Path) -> None:
    path = tmp_path / "RELEASE"
    padding = seals.LIMIT - len(VALID) - len(b"n=\n")
    path.write_bytes(VALID + b"n=" + b"x" * padding + b"\n")
    assert isinstance(seals.read_seal(str(path)), Seal)
    path.write_bytes(VALID + b"n=" + b"x" * (padding + 1) + b"\n")
    assert isinstance(seals.read_seal(str(path)), Defect)
