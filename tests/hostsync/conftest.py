"""Worlds for the transaction: one per kind of slot."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostsync.activation.install import install
from hostsync.model import SlotKind
from tests.hostsync.world import World, make_world


@pytest.fixture(params=list(SlotKind), ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A host with 1.0.0 installed and running, and one machine."""
    return installed(make_world(tmp_path, request.param))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[SlotKind], World]:
    """Makes hosts without a release."""
    return lambda kind: make_world(tmp_path, kind)


def installed(world: World) -> World:
    """Install 1.0.0 and start it, as an operator would."""
    install(world.host(), world.candidate("1.0.0"), start=True)
    if world.systemd.process is None:
        from hostsync.ports import UnitVerb

        world.systemd.queue(UnitVerb.START, world.agent.unit)
    return world
