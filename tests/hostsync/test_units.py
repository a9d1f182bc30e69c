"""systemd over a real bus: jobs and their results, properties, refusals, and a bus that breaks."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from jeepney import HeaderFields, message_bus  # type: ignore[import-untyped]
from jeepney.io.blocking import open_dbus_connection  # type: ignore[import-untyped]

from hostsync.errors import UnitsError
from hostsync.ports import UnitState, UnitVerb
from hostsync.units import Systemd
from tests.hostsync.fake_systemd import FakeSystemd, FakeUnit, Served, job_removed
from tests.nspawn.fake_machined import bus

LONG = 60.0
FOREVER = 3600.0
UNIT = "hostsync.service"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with bus(tmp_path / "bus") as running:
        yield running.address


@pytest.fixture
def fake(address: str) -> Iterator[FakeSystemd]:
    fake = FakeSystemd(address)
    yield fake
    fake.close()


@pytest.fixture
def served(fake: FakeSystemd) -> Served:
    return fake.served


@pytest.fixture
def systemd(address: str, fake: FakeSystemd) -> Iterator[Systemd]:
    systemd = Systemd(address)
    yield systemd
    systemd.close()


def awaited(systemd: Systemd, job: str) -> str:
    deadline = time.monotonic() + LONG
    while (result := systemd.job_result(job)) is None:
        assert time.monotonic() < deadline
        systemd.wait(LONG)
    return result


def test_a_unit_is_told_by_all_that_the_judge_looks_at(systemd: Systemd, served: Served) -> None:
    served.units[UNIT] = FakeUnit(sub="auto-restart", active="activating", restarts=3, result="oom")
    assert systemd.state(UNIT) == UnitState(
        load="loaded", active="activating", sub="auto-restart", main_pid=4242,
        invocation="000102030405060708090a0b0c0d0e0f", restarts=3, result="oom",
    )  # fmt: skip


def test_a_unit_that_does_not_exist_is_not_found_and_runs_nothing(systemd: Systemd) -> None:
    state = systemd.state("none.service")
    assert (state.load, state.active, state.main_pid) == ("not-found", "inactive", 0)
    assert state.invocation == ""


def test_a_unit_without_a_process_is_asked_for_no_process(systemd: Systemd, served: Served) -> None:
    served.units["a.target"] = FakeUnit()
    assert systemd.state("a.target").main_pid == 0
    assert [body for method, body in served.asked if method == "GetAll"] == [
        ("org.freedesktop.systemd1.Unit",)
    ]


@pytest.mark.parametrize("verb", list(UnitVerb))
@pytest.mark.parametrize("result", ["done", "failed", "timeout", "dependency"])
def test_a_result_that_overtakes_the_answer_is_not_lost(
    systemd: Systemd, served: Served, verb: UnitVerb, result: str
) -> None:
    served.result = result
    job = systemd.queue(verb, UNIT)
    assert awaited(systemd, job) == result
    assert systemd.job_result(job) == result
    assert (verb.value, (UNIT, "replace")) in served.asked


def test_a_job_has_no_result_until_it_ends(systemd: Systemd, fake: FakeSystemd) -> None:
    fake.served.result = None
    job = systemd.queue(UnitVerb.RESTART, UNIT)
    other = systemd.queue(UnitVerb.RESTART, "other.service")
    assert systemd.job_result(job) is None
    fake.end_job(other, "failed")
    assert awaited(systemd, other) == "failed"
    assert systemd.job_result(job) is None
    fake.end_job(job, "done")
    assert awaited(systemd, job) == "done"


def test_signals_are_asked_for_before_the_first_job(systemd: Systemd, served: Served) -> None:
    systemd.queue(UnitVerb.START, UNIT)
    assert [method for method, _ in served.asked] == ["Subscribe", "StartUnit"]


def spoof(address: str, job: str) -> None:
    """Another client says that a job was done, straight to every connection of this bus."""
    with open_dbus_connection(address) as stranger:
        for number in range(int(stranger.unique_name.rpartition(".")[2])):
            signal = job_removed(job, "done")
            signal.header.fields[HeaderFields.destination] = f":1.{number}"
            stranger.send(signal)
        # Once the bus answered this it has passed on what was sent before.
        stranger.send_and_get_reply(message_bus.GetId(), timeout=LONG)


def test_a_result_that_systemd_did_not_send_is_ignored(
    address: str, systemd: Systemd, fake: FakeSystemd
) -> None:
    fake.served.result = None
    job = systemd.queue(UnitVerb.START, UNIT)
    spoof(address, job)
    systemd.wait(LONG)
    assert systemd.job_result(job) is None
    fake.end_job(job, "failed")
    assert awaited(systemd, job) == "failed"


def test_a_stranger_that_speaks_while_systemd_is_away_is_ignored(
    address: str, systemd: Systemd, fake: FakeSystemd
) -> None:
    fake.served.result = None
    job = systemd.queue(UnitVerb.START, UNIT)
    fake.close()
    spoof(address, job)
    systemd.wait(LONG)
    assert systemd.job_result(job) is None


def test_waiting_ends_when_a_unit_changes_and_after_its_time_else(
    systemd: Systemd, fake: FakeSystemd
) -> None:
    systemd.wait(0)
    fake.change(UNIT)
    # Without an end at the change, or at its time, the test would not end either.
    systemd.wait(FOREVER)
    started = time.monotonic()
    systemd.wait(0.05)
    assert time.monotonic() - started >= 0.05


def test_a_refused_reset_is_tolerated_and_other_refusals_are_not(
    systemd: Systemd, served: Served
) -> None:
    denied = "org.freedesktop.DBus.Error.AccessDenied"
    served.errors = dict.fromkeys(("ResetFailedUnit", "StartUnit", "Reload"), denied)
    systemd.reset_failed(UNIT)
    assert ("ResetFailedUnit", (UNIT,)) in served.asked
    with pytest.raises(UnitsError, match=rf"refused StartUnit .*{UNIT}.*AccessDenied: refused by"):
        systemd.queue(UnitVerb.START, UNIT)
    with pytest.raises(UnitsError, match="refused Reload"):
        systemd.reload()


@pytest.mark.parametrize("name", ["NoSuchProcess", "NoSuchUnit"])
def test_killing_what_does_not_run_is_done(systemd: Systemd, served: Served, name: str) -> None:
    served.errors["KillUnit"] = f"org.freedesktop.systemd1.{name}"
    systemd.kill(UNIT)
    assert ("KillUnit", (UNIT, "all", 9)) in served.asked


def test_a_refused_kill_is_an_error(systemd: Systemd, served: Served) -> None:
    served.errors["KillUnit"] = "org.freedesktop.DBus.Error.AccessDenied"
    with pytest.raises(UnitsError, match="refused KillUnit"):
        systemd.kill(UNIT)


def test_units_are_enabled_for_good_and_without_force(systemd: Systemd, served: Served) -> None:
    systemd.enable(("a.service", "b.service"))
    systemd.reload()
    assert served.asked[-2:] == [
        ("EnableUnitFiles", (["a.service", "b.service"], False, False)),
        ("Reload", ()),
    ]


def test_a_bus_that_is_not_there_is_told_with_a_remedy(tmp_path: Path) -> None:
    for address in (f"unix:path={tmp_path}/none", "nonsense", "unix:", "tcp:host=x"):
        with pytest.raises(UnitsError, match="cannot reach systemd") as told:
            Systemd(address).state(UNIT)
        assert "dbus" in told.value.remedy


def test_a_bus_without_systemd_is_told(address: str) -> None:
    systemd = Systemd(address)
    with pytest.raises(UnitsError, match="refused Subscribe"):
        systemd.state(UNIT)
    systemd.close()


def test_a_connection_that_is_lost_is_told_and_the_next_verb_opens_another(
    tmp_path: Path,
) -> None:
    with ExitStack() as first:
        address = first.enter_context(bus(tmp_path)).address
        fake = FakeSystemd(address)
        first.callback(fake.close)
        systemd = Systemd(address)
        assert systemd.state(UNIT).load == "not-found"
    with pytest.raises(UnitsError, match="lost the connection"):
        systemd.wait(LONG)
    with pytest.raises(UnitsError, match="cannot reach systemd"):
        systemd.state(UNIT)
    with bus(tmp_path):
        again = FakeSystemd(address)
        again.served.units[UNIT] = FakeUnit()
        assert systemd.state(UNIT).active == "active"
        assert awaited(systemd, systemd.queue(UnitVerb.START, UNIT)) == "done"
        systemd.close()
        again.close()


def test_an_answer_that_never_comes_because_systemd_went_is_told(
    systemd: Systemd, fake: FakeSystemd
) -> None:
    fake.served.at["StartUnit"] = fake.vanish
    with pytest.raises(UnitsError, match="StartUnit"):
        systemd.queue(UnitVerb.START, UNIT)


@pytest.mark.parametrize("method", ["Subscribe", "LoadUnit", "GetAll"])
def test_nonsense_and_refusals_end_in_an_error_and_leave_nothing_open(
    systemd: Systemd, served: Served, method: str
) -> None:
    served.errors[method] = "org.freedesktop.DBus.Error.Failed"
    with pytest.raises(UnitsError, match=f"refused {method}"):
        systemd.state(UNIT)
    served.errors.clear()
    served.units[UNIT] = FakeUnit()
    assert systemd.state(UNIT).main_pid == 4242
