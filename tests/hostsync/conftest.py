"""Worlds for the transaction: one per kind of slot."""

from pathlib import Path

import pytest

from hostsync.model import SlotKind
from tests.hostsync.world import World, installed, make_world


@pytest.fixture
def bundle(tmp_path: Path) -> World:
    """The same, for the agent that comes as a directory."""
    return installed(make_world(tmp_path / "host", SlotKind.BUNDLE))


@pytest.fixture(params=list(SlotKind), ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A host with 1.0.0 installed and running, and one machine."""
    kind: SlotKind = request.param
    return installed(make_world(tmp_path, kind))
