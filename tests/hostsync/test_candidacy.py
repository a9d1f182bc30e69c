"""An archive is unpacked before it is known what it is: nothing of it may stay that should not."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync.activation import switch
from hostsync.activation.host import Host
from hostsync.activation.plan import NothingToDo, Plan
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.errors import HostsyncError, Reason, Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind
from hostsync.release import open_candidate
from tests.hostsync.intake import archive_of, put
from tests.hostsync.release.tarball import bundle as bundle_archive
from tests.hostsync.release.tarball import file as member
from tests.hostsync.test_transaction import current_version, lasting
from tests.hostsync.world import PLENTY, PlayedProbe, World

OPTIONS = Options()
ORDERS = pytest.mark.parametrize("order", [switch.upgrade, switch.preflight])
Order = Callable[[Host, Path, Options], object]


def packed(world: World, version: str, behaviour: str = "good") -> Path:
    archive = archive_of(world, version, behaviour)
    return put(world.top / f"candidates/{version}-{behaviour}.tar.gz", archive)


def with_room(world: World, free: int) -> Host:
    host = world.host()
    assert isinstance(host.probe, PlayedProbe)
    host.probe.space_now = replace(PLENTY, free=host.config.reserve_bytes + free)
    return host


def refused(host: Host, order: Order, path: Path, world: World) -> Refused:
    """The refusal of an order, which left the host as it was."""
    before = lasting(world)
    with pytest.raises(Refused) as caught:
        order(host, path, OPTIONS)
    assert lasting(world) == before
    assert host.record.load() is None
    return caught.value


def test_preflight_of_an_archive_leaves_no_trace(world: World) -> None:
    path = packed(world, "1.1.0")
    before = lasting(world)
    assert isinstance(switch.preflight(world.host(), path, OPTIONS), Plan)
    assert lasting(world) == before


@ORDERS
def test_an_archive_that_is_damaged_at_its_end_is_unpacked_in_vain(
    world: World, order: Order
) -> None:
    path = packed(world, "1.1.0")
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    refusal = refused(world.host(), order, path, world)
    assert refusal.reason is Reason.BAD_CANDIDATE
    assert "damaged" in refusal.brief


@ORDERS
def test_an_archive_of_the_release_in_use_is_nothing_to_do_and_leaves_nothing(
    world: World, order: Order
) -> None:
    before = lasting(world)
    assert isinstance(order(world.host(), packed(world, "1.0.0"), OPTIONS), NothingToDo)
    assert lasting(world) == before


@ORDERS
def test_an_archive_of_a_known_bad_release_is_refused_and_leaves_nothing(
    world: World, order: Order
) -> None:
    path = packed(world, "1.1.0", "crash")
    switch.upgrade(world.host(), path, OPTIONS)
    settle(world.host())
    assert refused(world.host(), order, path, world).reason is Reason.KNOWN_BAD


@ORDERS
def test_where_there_is_no_room_the_release_in_use_is_still_nothing_to_do(
    world: World, order: Order
) -> None:
    """What is refused whatever it is is read, not unpacked, so the disk is not touched."""
    changes = world.disk.changes
    assert isinstance(order(with_room(world, 0), packed(world, "1.0.0"), OPTIONS), NothingToDo)
    refusal = refused(with_room(world, 0), order, packed(world, "1.1.0"), world)
    assert refusal.reason is Reason.NO_SPACE
    assert "the release needs 1 MiB" in refusal.brief
    assert world.disk.changes == changes


@ORDERS
def test_an_archive_that_says_it_is_smaller_than_it_is_stays_within_the_room(
    tmp_path: Path, bundle: World, order: Order
) -> None:
    """Its last four bytes are a claim; when more comes out than fits, it is refused there."""
    archive = bundle_archive(member("lib/x", bytes(range(256)) * 4096))
    path = put(tmp_path / "lying.tar.gz", archive[:-4] + bytes(4))
    refusal = refused(with_room(bundle, 300_000), order, path, bundle)
    assert refusal.reason is Reason.NO_SPACE
    assert str(bundle.layout.root) in refusal.brief


def test_an_archive_that_says_it_is_larger_than_it_is_is_refused_as_damaged(world: World) -> None:
    path = packed(world, "1.1.0")
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\x7f")
    refusal = refused(with_room(world, 1 << 20), switch.upgrade, path, world)
    assert refusal.reason is Reason.BAD_CANDIDATE


def test_an_order_with_just_enough_room_is_carried_out(world: World) -> None:
    path = packed(world, "1.1.0")
    expanded = len(gzip.decompress(path.read_bytes()))
    switch.upgrade(with_room(world, expanded), path, OPTIONS)
    settle(world.host())
    assert current_version(world) == "1.1.0"


def test_an_archive_is_judged_and_unpacked_in_one_reading(tmp_path: Path) -> None:
    """What is read beside is what was installed, to compare it."""
    content = bytes(range(256)) * 16384
    path = put(tmp_path / "a.tar.gz", bundle_archive(member("lib/x", content)))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 0))
    with open_candidate(path, agent="hostsync", kind=SlotKind.BUNDLE) as candidate:
        before = bytes_read()
        candidate.stage(tmp_path / "slot", Disk())
        candidate.inspect()
        read = bytes_read() - before
    archive = path.stat().st_size
    assert 2 * len(content) < read < archive + len(content) + (1 << 20)


def bytes_read() -> int:
    """What this process has read so far, from whatever file (proc(5), /proc/pid/io)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_a_failure_before_the_record_is_told_and_leaves_nothing(world: World) -> None:
    """The record itself cannot be written."""
    before = lasting(world)
    record = world.host().record.path
    record.mkdir(parents=True)
    with pytest.raises(HostsyncError):
        switch.upgrade(world.host(), packed(world, "1.1.0"), OPTIONS)
    record.rmdir()
    assert lasting(world) == before
