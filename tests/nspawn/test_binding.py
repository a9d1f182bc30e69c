from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from nspawn.errors import BindReason, BindRefused, BusUnavailable, NoSuchMachine
from nspawn.machined import Machined
from tests.nspawn.fake_machined import FakeMachine, FakeMachined, bus
from tests.nspawn.machines import running

DBUS = "org.freedesktop.DBus.Error."


def test_a_bind_is_asked_for_read_only_with_its_mount_point_made(
    fake: FakeMachined, machined: Machined, tmp_path: Path
) -> None:
    fake.machines = {"kube1": FakeMachine(leader=os.getpid())}
    machined.bind("kube1", tmp_path, Path("/opt/agent"))
    assert fake.binds == [("kube1", str(tmp_path), "/opt/agent", True, True)]


def test_a_bind_into_no_machine_says_so(machined: Machined, tmp_path: Path) -> None:
    with pytest.raises(NoSuchMachine):
        machined.bind("kube1", tmp_path, Path("/opt/agent"))


@pytest.mark.parametrize(
    ("source", "destination", "reason"),
    [
        ("/missing/source", "/opt", BindReason.SOURCE_MISSING),
        ("usr", "/opt", BindReason.OTHER),
        ("/usr", "opt", BindReason.OTHER),
        ("/usr", "/opt/../etc", BindReason.OTHER),
    ],
)
def test_what_machined_would_answer_ambiguously_is_never_asked(
    fake: FakeMachined, machined: Machined, source: str, destination: str, reason: BindReason
) -> None:
    fake.machines = {"kube1": FakeMachine(leader=os.getpid())}
    with pytest.raises(BindRefused) as refused:
        machined.bind("kube1", Path(source), Path(destination))
    assert refused.value.reason is reason
    assert fake.binds == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("error", "destination", "reason"),
    [
        ("NotSupported: user namespacing applied.", "/usr", BindReason.USER_NAMESPACE),
        ("NotSupported: no propagation of mount points.", "/usr", BindReason.PROPAGATION),
        ("InvalidArgs: Failed to mount", "/usr", BindReason.PROPAGATION),
        ("InvalidArgs: Failed to mount", "/link", BindReason.DESTINATION_IS_LINK),
        ("InvalidArgs: Failed to mount", "/file", BindReason.OTHER),
        ("FileNotFound: No such file", "/usr", BindReason.OTHER),
        ("Failed: Transport endpoint", "/usr", BindReason.OTHER),
        ("AccessDenied: Access denied", "/usr", BindReason.OTHER),
    ],
)
def test_a_refused_bind_tells_why(
    fake: FakeMachined,
    machined: Machined,
    rootfs: Path,
    error: str,
    destination: str,
    reason: BindReason,
) -> None:
    (rootfs / "link").symlink_to("usr")
    (rootfs / "file").touch()
    name, _, text = error.partition(": ")
    fake.bind_error = (DBUS + name, text)
    with running(rootfs) as leader:
        fake.machines = {"kube1": FakeMachine(leader=leader.leader)}
        with pytest.raises(BindRefused, match=text) as refused:
            machined.bind("kube1", rootfs, Path(destination))
    assert refused.value.reason is reason
    assert refused.value.remedy


def test_a_bind_into_a_virtual_machine_tells_that_it_is_no_container(
    fake: FakeMachined, machined: Machined, tmp_path: Path
) -> None:
    fake.machines = {"vm": FakeMachine(leader=os.getpid(), class_="vm")}
    fake.bind_error = (f"{DBUS}NotSupported", "only supported on container machines")
    with pytest.raises(BindRefused) as refused:
        machined.bind("vm", tmp_path, Path("/opt"))
    assert refused.value.reason is BindReason.NOT_A_CONTAINER


def test_a_bind_is_never_repeated_by_itself(tmp_path: Path) -> None:
    # On systemd 252 the second one would stack upon the first.
    with ExitStack() as stack:
        first = stack.enter_context(bus(tmp_path / "first"))
        second = stack.enter_context(bus(tmp_path / "second"))
        fake, successor = FakeMachined(first.address), FakeMachined(second.address)
        stack.callback(fake.close)
        stack.callback(successor.close)
        fake.machines = successor.machines = {"kube1": FakeMachine(leader=os.getpid())}
        machined = stack.enter_context(Machined.connect(first.address))

        def replace_the_bus() -> None:
            second.socket.replace(first.socket)
            first.daemon.kill()

        fake.at_bind = replace_the_bus
        with pytest.raises(BusUnavailable, match="look whether it is there"):
            machined.bind("kube1", tmp_path, Path("/opt"))
        assert (len(fake.binds), successor.binds) == (1, [])
        assert machined.get("kube1").name == "kube1"
