"""A host that somebody else's installer set up: what is in use is kept, and becomes a slot."""

from pathlib import Path

import pytest

from hostsync.activation.install import install
from hostsync.errors import Reason, Refused
from hostsync.model import SlotKind
from tests.hostsync.test_install import (
    assert_ready_for_upgrades,
    with_a_single_file,
    with_flex_slots,
)
from tests.hostsync.test_transaction import current_version, last_good_version
from tests.hostsync.world import World, make_world, snapshot


@pytest.fixture
def flex(tmp_path: Path) -> World:
    return make_world(tmp_path / "host", SlotKind.FILE)


def test_a_single_file_is_adopted_with_its_bytes(flex: World) -> None:
    with_a_single_file(flex)
    command = flex.agent.commands[0].path
    content = command.read_bytes()
    done = install(flex.host(), None, start=True)
    assert (done.version, done.adopted) == ("0.9.0", True)
    assert command.is_symlink()
    assert command.read_bytes() == content
    assert (current_version(flex), last_good_version(flex)) == ("0.9.0", "0.9.0")
    assert_ready_for_upgrades(flex)


def test_slots_whose_links_are_paths_in_full_are_adopted_with_relative_ones(flex: World) -> None:
    with_flex_slots(flex)
    for link in (flex.layout.current, flex.layout.last_good):
        target = link.resolve()
        link.unlink()
        link.symlink_to(target)
    done = install(flex.host(), None, start=True)
    assert (done.version, done.slot, done.adopted) == ("0.9.1", "green", True)
    assert str(flex.layout.current.readlink()) == "aks-flex-node-green"
    assert str(flex.layout.last_good.readlink()) == "aks-flex-node-blue"
    assert_ready_for_upgrades(flex)


def test_an_unsealed_release_in_use_is_not_displaced_by_another(flex: World) -> None:
    with_flex_slots(flex)
    other = flex.candidate("1.0.0")
    before = snapshot(flex.top)
    with pytest.raises(Refused) as refused:
        install(flex.host(), other, start=True)
    assert refused.value.reason is Reason.NOT_OURS
    assert snapshot(flex.top) == before


def test_a_file_of_another_release_at_the_compatibility_path_is_not_lost(flex: World) -> None:
    with_a_single_file(flex)
    with pytest.raises(Refused, match="adopt"):
        install(flex.host(), flex.candidate("1.0.0"), start=True)
    assert "0.9.0" in flex.agent.commands[0].path.read_text()
