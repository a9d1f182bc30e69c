"""What machines say of a release decides with the service, and is owed when it cannot be done."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync.activation import switch
from hostsync.activation.host import Event
from hostsync.activation.install import install
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.errors import MachineError, Reason, Refused
from hostsync.model import SlotKind
from hostsync.state import Outcome
from hostsync.sync import inspect, synchronise
from tests.hostsync.test_transaction import current_version, lasting, order
from tests.hostsync.world import World, installed, make_world

# `check` succeeds but for the versions that BROKEN names, wherever it runs.
SHIM = """#!/bin/sh
case "$1 $BROKEN" in check*VERSION*) exit 5 ;; check*) exit 0 ;; esac
echo "hostsync-credential VERSION (protocol 1)"
"""


@pytest.fixture
def tested(tmp_path: Path) -> World:
    """A host with 1.0.0, whose releases are asked for a token inside machines."""
    world = make_world(tmp_path, SlotKind.BUNDLE)
    world.agent = replace(world.agent, self_test=("bin/hostsync-credential", "check"))
    install(world.host(), world.candidate("1.0.0", shim=shim("1.0.0")), start=True)
    return world


def shim(version: str) -> str:
    return SHIM.replace("VERSION", version)


def test_a_release_whose_plugin_gets_no_token_in_the_machine_is_refused_before_the_switch(
    tested: World,
) -> None:
    before = lasting(tested)
    tested.machines.environment["BROKEN"] = "1.1.0"
    with pytest.raises(Refused, match="self-test in machine kube1 ended with status 5") as refused:
        order(tested, "1.1.0", shim=shim("1.1.0"))
    assert refused.value.reason is Reason.CANDIDATE_FAILS
    assert lasting(tested) == before


def test_an_outage_that_was_there_before_is_not_blamed_on_the_release(tested: World) -> None:
    tested.machines.environment["BROKEN"] = "1.0.0 1.1.0"
    assert order(tested, "1.1.0", shim=shim("1.1.0")).outcome is Outcome.COMPLETE


def test_a_plugin_that_fails_during_the_trial_is_rolled_back_and_remembered(
    tested: World,
) -> None:
    switch.upgrade(tested.host(), tested.candidate("1.1.0", shim=shim("1.1.0")), Options())
    tested.machines.environment["BROKEN"] = "1.1.0"
    line = settle(tested.host())
    assert line is not None
    assert line.outcome is Outcome.ROLLED_BACK
    assert "that of the release before succeeds there" in line.reason
    assert current_version(tested) == "1.0.0"
    assert [bad.version for bad in tested.host().state.known_bad()] == ["1.1.0"]


@pytest.mark.parametrize("active", ["failed", "activating", "deactivating", "active"])
def test_only_a_service_that_was_stopped_on_purpose_is_not_restarted(
    tmp_path: Path, active: str
) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    world.systemd.active = active
    assert order(world, "1.1.0").outcome is Outcome.COMPLETE
    assert f"RestartUnit {world.agent.unit}" in world.systemd.requests
    assert world.systemd.process is not None
    assert "1.1.0" in world.systemd.process.program.read_text()


def test_a_machine_that_cannot_go_back_is_owed_and_named_until_it_is_in_step(
    tmp_path: Path,
) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    switch.upgrade(world.host(), world.candidate("1.1.0", "crash"), Options())
    world.machines.bound.clear()
    world.machines.bind_refused = "no propagation"

    def break_mirrors(event: Event) -> None:
        world.machines.mirror_fails |= event.act == "judge"

    line = settle(replace(world.host(), tell=break_mirrors))
    assert line is not None
    assert line.outcome is Outcome.ROLLED_BACK
    assert "is broken" in line.reason

    host = world.host()
    (worker,) = host.machines.running()
    with pytest.raises(MachineError):
        synchronise(host.machines, host.agent, worker)
    assert not inspect(host.machines, host.agent, worker).in_step
    world.machines.mirror_fails = False
    assert synchronise(host.machines, host.agent, worker).in_step
    assert inspect(host.machines, host.agent, worker).release == "1.0.0"
