"""Worlds for the transaction, one per kind of slot, and a process to fork commands from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostsync.model import SlotKind
from tests.hostsync.command import SOURCE
from tests.hostsync.world import World, installed, make_world
from tests.hostsync.zygote import Zygote, running_zygote


@pytest.fixture
def bundle(tmp_path: Path) -> World:
    """The same, for the agent that comes as a directory."""
    return installed(make_world(tmp_path / "host", SlotKind.BUNDLE))


@pytest.fixture(params=list(SlotKind), ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A host with 1.0.0 installed and running, and one machine."""
    kind: SlotKind = request.param
    return installed(make_world(tmp_path, kind))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Where commands of `tests.hostsync.command` are forked from."""
    with running_zygote(SOURCE) as running:
        yield running
