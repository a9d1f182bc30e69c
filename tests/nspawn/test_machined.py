from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    message_bus,
    new_signal,
)
from jeepney.io.blocking import open_dbus_connection  # type: ignore[import-untyped]

from nspawn.errors import BusUnavailable, NoSuchMachine
from nspawn.machine import start_time
from nspawn.machined import EventKind, Machined, MachineEvent
from tests.nspawn.fake_machined import MANAGER, PATH, FakeMachine, FakeMachined, bus
from tests.nspawn.machines import running

DBUS = "org.freedesktop.DBus.Error."
NEW, REMOVED = EventKind.NEW, EventKind.REMOVED
WAIT = 60.0


def _event(kind: EventKind, name: str) -> MachineEvent:
    return MachineEvent(kind=kind, name=name)


@pytest.mark.slow
def test_importing_the_library_loads_no_bus_and_no_ctypes() -> None:
    code = "import nspawn, sys; print({'jeepney', 'ctypes'} & set(sys.modules))"
    code += "; import nspawn.machined; print('jeepney' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.split("\n")[:2] == ["set()", "False"]


def test_running_containers_are_listed_by_name(fake: FakeMachined, machined: Machined) -> None:
    me = os.getpid()
    fake.machines = {
        ".host": FakeMachine(leader=1, class_="host"),
        "kube-2.a": FakeMachine(leader=me),
        "vm": FakeMachine(leader=me, class_="vm"),
        "kube1": FakeMachine(leader=me),
    }
    assert [machine.name for machine in machined.list()] == ["kube-2.a", "kube1"]


def test_a_machine_that_vanishes_meanwhile_is_left_out(
    fake: FakeMachined, machined: Machined
) -> None:
    fake.machines = {name: FakeMachine(leader=os.getpid()) for name in ("kube1", "kube2", "kube3")}
    fake.machines["kube3"].leader = 0
    fake.vanishing = {"kube1"}
    assert [machine.name for machine in machined.list()] == ["kube2"]


def test_a_leader_that_is_gone_means_no_machine(fake: FakeMachined, machined: Machined) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    fake.machines = {"kube1": FakeMachine(leader=child.pid)}
    with pytest.raises(NoSuchMachine, match="kube1"):
        machined.get("kube1")


@pytest.mark.parametrize("name", ["kube9", ".host", "", "a/b"])
def test_an_unknown_machine_is_named(machined: Machined, name: str) -> None:
    with pytest.raises(NoSuchMachine) as missing:
        machined.get(name)
    assert missing.value.name == name


@pytest.mark.root
def test_a_machine_is_told_with_its_leader_and_root(
    fake: FakeMachined, machined: Machined, rootfs: Path
) -> None:
    with running(rootfs) as leader:
        fake.machines = {"kube1": FakeMachine(leader=leader.leader, root=str(rootfs))}
        machine = machined.get("kube1")
    assert machine == leader
    assert machine.leader_start > 0


@pytest.mark.root
def test_a_root_that_the_leader_does_not_have_is_none(
    fake: FakeMachined, machined: Machined, rootfs: Path, tmp_path: Path
) -> None:
    ephemeral = tmp_path / ".#machine.kube1abc"
    ephemeral.mkdir()
    with running(rootfs) as leader, running(ephemeral) as copy:
        for pid, root in (
            (leader.leader, tmp_path),
            (leader.leader, tmp_path / "image.raw"),
            (leader.leader, Path()),
            (copy.leader, ephemeral),
        ):
            fake.machines = {"kube1": FakeMachine(leader=pid, root=str(root))}
            assert machined.get("kube1").root is None


@pytest.mark.root
def test_a_user_namespace_is_noticed_even_with_an_identity_map(
    fake: FakeMachined, machined: Machined, rootfs: Path
) -> None:
    prefix = ("unshare", "--user", "--map-root-user")
    with running(rootfs, prefix=prefix) as leader:
        fake.machines = {"kube1": FakeMachine(leader=leader.leader)}
        assert machined.get("kube1").user_namespace is True


def test_events_arrive_in_order_and_silence_ends_in_time(
    fake: FakeMachined, machined: Machined
) -> None:
    fake.announce("MachineNew", "kube1")
    fake.announce("MachineRemoved", "kube1")
    fake.announce("MachineNew", ".host")
    fake.announce("MachineNew", "kube-2.a")
    assert machined.wait_event(WAIT) == _event(NEW, "kube1")
    assert machined.wait_event(WAIT) == _event(REMOVED, "kube1")
    assert machined.wait_event(WAIT) == _event(NEW, "kube-2.a")
    assert machined.wait_event(0) is None
    assert machined.wait_event(0.01) is None


def test_an_event_during_a_call_is_not_lost(fake: FakeMachined, machined: Machined) -> None:
    fake.machines = {"kube1": FakeMachine(leader=os.getpid())}
    fake.announce("MachineNew", "kube1")
    machined.list()
    assert machined.wait_event(WAIT) == _event(NEW, "kube1")


def test_a_signal_that_machined_did_not_send_is_ignored(
    address: str, fake: FakeMachined, machined: Machined
) -> None:
    # A signal with a destination goes past the bus's own matching. Names are given out in
    # order, and the one before the stranger's is that of the connection under test.
    with open_dbus_connection(address) as stranger:
        number = int(stranger.unique_name.rpartition(".")[2])
        for target in range(number):
            signal = new_signal(
                DBusAddress(PATH, interface=MANAGER), "MachineRemoved", "so", ("kube1", PATH)
            )
            signal.header.fields[HeaderFields.destination] = f":1.{target}"
            stranger.send(signal)
        # Once the bus answered this it has passed on what was sent before.
        stranger.send_and_get_reply(message_bus.GetId(), timeout=WAIT)
    fake.announce("MachineNew", "kube2")
    assert machined.wait_event(WAIT) == _event(NEW, "kube2")


def test_a_restarted_bus_is_reconnected_to(tmp_path: Path) -> None:
    with ExitStack() as first:
        address = first.enter_context(bus(tmp_path)).address
        fake = FakeMachined(address)
        first.callback(fake.close)
        machined = Machined.connect(address)
        assert machined.list() == ()
    with bus(tmp_path), machined:
        again = FakeMachined(address)
        again.machines = {"kube1": FakeMachine(leader=os.getpid())}
        assert [machine.name for machine in machined.list()] == ["kube1"]
        again.close()


def test_after_a_lost_connection_the_difference_is_reported(tmp_path: Path) -> None:
    with ExitStack() as first:
        address = first.enter_context(bus(tmp_path)).address
        fake = FakeMachined(address)
        first.callback(fake.close)
        fake.machines = {name: FakeMachine(leader=os.getpid()) for name in ("kube1", "kube2")}
        machined = Machined.connect(address)
        machined.list()
    with bus(tmp_path), machined:
        again = FakeMachined(address)
        again.machines = {name: FakeMachine(leader=os.getpid()) for name in ("kube2", "kube3")}
        events = [machined.wait_event(WAIT) for _ in range(3)]
        assert events == [_event(REMOVED, "kube1"), _event(NEW, "kube2"), _event(NEW, "kube3")]
        again.announce("MachineRemoved", "kube3")
        assert machined.wait_event(WAIT) == _event(REMOVED, "kube3")
        again.close()


def test_a_bus_that_is_gone_is_named_with_a_remedy(tmp_path: Path) -> None:
    with bus(tmp_path) as short_lived:
        address = short_lived.address
        machined = Machined.connect(address)
    for act in (machined.list, lambda: machined.wait_event(WAIT)):
        with pytest.raises(BusUnavailable, match="check that dbus runs"):
            act()
    with pytest.raises(BusUnavailable):
        Machined.connect(address)
    machined.close()


def test_a_bus_without_machined_is_named(address: str) -> None:
    with Machined.connect(address) as machined:
        with pytest.raises(BusUnavailable, match="systemd-machined"):
            machined.list()
        with pytest.raises(BusUnavailable, match="systemd-machined"):
            machined.get("kube1")


def test_a_command_name_with_parentheses_does_not_shift_the_start_time() -> None:
    fields = b"7 (a) b (c)) S 1 " + b" ".join(b"%d" % number for number in range(5, 53))
    assert start_time(fields) == 22
