"""The first release on a host: installed or adopted, repeatable after a kill at any change."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostsync import slots
from hostsync.activation import switch
from hostsync.activation.install import install
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.errors import Reason, Refused
from hostsync.model import SlotKind, SlotName
from hostsync.ports import Space
from tests.hostsync.moments import moments
from tests.hostsync.test_transaction import current_version, last_good_version, lasting
from tests.hostsync.world import Killed, PlayedProbe, World, make_world, script, snapshot

FLEX_ASIDE = "aks-flex-node"


@pytest.fixture(params=list(SlotKind), ids=str)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A host without a release, with one machine."""
    kind: SlotKind = request.param
    return make_world(tmp_path / "host", kind)


@pytest.fixture
def flex(tmp_path: Path) -> World:
    return make_world(tmp_path / "host", SlotKind.FILE)


def put_program(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(FLEX_ASIDE, version, "good"))
    path.chmod(0o755)
    return path


def with_a_single_file(world: World) -> World:
    """A host as the agent's own installer leaves it: one file at the compatibility path."""
    put_program(world.agent.commands[0].path, "0.9.0")
    return world


def with_flex_slots(world: World) -> World:
    """A host that the agent upgraded itself: two slots and links, no seals."""
    put_program(world.layout.slot(SlotName.BLUE), "0.9.0")
    put_program(world.layout.slot(SlotName.GREEN), "0.9.1")
    world.layout.current.symlink_to(world.layout.slot(SlotName.GREEN).name)
    world.layout.last_good.symlink_to(world.layout.slot(SlotName.BLUE).name)
    command = world.agent.commands[0].path
    command.parent.mkdir(parents=True, exist_ok=True)
    command.symlink_to(os.path.relpath(world.layout.current, command.parent))
    return world


def assert_ready_for_upgrades(world: World) -> None:
    """An installed host is one on which an order succeeds."""
    switch.upgrade(world.host(), world.candidate("2.0.0"), Options())
    settle(world.host())
    assert current_version(world) == "2.0.0"


def test_a_fresh_host_gets_the_release_its_links_its_mirror_and_its_service(bare: World) -> None:
    done = install(bare.host(), bare.candidate("1.0.0"), start=True)
    assert (done.version, done.slot, done.adopted, done.problems) == ("1.0.0", "blue", False, ())
    assert (current_version(bare), last_good_version(bare)) == ("1.0.0", "1.0.0")
    assert slots.intact(bare.layout, bare.layout.current.resolve())
    for command in bare.agent.commands:
        assert command.path.resolve().read_text().endswith('1.0.0 (protocol 1)"\n')
    mirror = snapshot(bare.inside("kube1", bare.layout.root))
    assert set(mirror) - {"WANTED"} == set(snapshot(bare.layout.root))
    assert not list(bare.layout.root.glob(".hostsync*"))
    if bare.agent.owns_assets:
        assert "enable hostsync.service hostsync-judge.service" in bare.systemd.requests
        assert "StartUnit hostsync.service" in bare.systemd.requests
    assert_ready_for_upgrades(bare)


def test_an_installation_repeated_changes_nothing(bare: World) -> None:
    install(bare.host(), bare.candidate("1.0.0"), start=True)
    before, changes = snapshot(bare.top), bare.disk.changes
    again = install(bare.host(), bare.candidate("1.0.0"), start=True)
    assert (again.version, again.slot) == ("1.0.0", "blue")
    assert snapshot(bare.top) == before
    assert bare.disk.changes == changes


def test_a_service_is_not_started_unless_asked(bare: World) -> None:
    install(bare.host(), bare.candidate("1.0.0"), start=False)
    assert not [request for request in bare.systemd.requests if request.startswith("StartUnit")]


def test_an_installation_ends_when_the_service_is_ready(tmp_path: Path) -> None:
    world = make_world(tmp_path / "host", SlotKind.BUNDLE)
    assert install(world.host(), world.candidate("1.0.0"), start=True).problems == ()
    assert world.systemd.state(world.agent.unit).active == "active"
    done = [(event.object, event.stage) for event in world.events if event.act == "start"]
    assert done == [(world.agent.unit, "started"), (world.agent.unit, "complete")]


@pytest.mark.parametrize(
    ("behaviour", "why"), [("crash", "did not start"), ("hang", "is not ready after 20 s")]
)
def test_a_service_that_does_not_get_ready_is_a_problem_of_the_installation(
    tmp_path: Path, behaviour: str, why: str
) -> None:
    world = make_world(tmp_path / "host", SlotKind.BUNDLE)
    done = install(world.host(), world.candidate("1.0.0", behaviour), start=True)
    (problem,) = done.problems
    assert problem.startswith(f"hostsync.service {why}; ")
    assert "journalctl -u hostsync.service" in problem
    assert current_version(world) == "1.0.0"


def fresh(world: World) -> Path | None:
    return world.candidate("1.0.0")


def adopting_a_file(world: World) -> Path | None:
    with_a_single_file(world)
    return None


def adopting_slots(world: World) -> Path | None:
    with_flex_slots(world)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "prepare"),
    [
        (SlotKind.BUNDLE, fresh),
        (SlotKind.FILE, fresh),
        (SlotKind.FILE, adopting_a_file),
        (SlotKind.FILE, adopting_slots),
    ],
)
def test_an_installation_killed_at_any_change_is_finished_by_repeating_it(
    tmp_path: Path, kind: SlotKind, prepare: Callable[[World], Path | None]
) -> None:
    world = make_world(tmp_path / "host", kind)
    path = prepare(world)
    served = world.agent.commands[0].path.exists()
    killed = moments(world, tmp_path / "kept")
    install(world.host(), path, start=True)
    wanted = lasting(world)
    assert len(killed) == world.disk.changes > 1
    for kill_at, moment in enumerate(killed):
        world = moment.again()
        assert world.agent.commands[0].path.exists() or not served
        if world.layout.current.is_symlink() and prepare is not adopting_slots:
            assert slots.runnable(world.layout, world.layout.current.resolve())
        install(world.host(), path, start=True)
        assert lasting(world) == wanted, (kill_at, world.disk.log[-5:])


def test_slots_that_are_in_use_are_sealed_where_they_are(flex: World) -> None:
    with_flex_slots(flex)
    inodes = [flex.layout.slot(name).stat().st_ino for name in SlotName]
    links = [path.readlink() for path in (flex.layout.current, flex.layout.last_good)]
    done = install(flex.host(), None, start=True)
    assert (done.version, done.slot, done.adopted) == ("0.9.1", "green", True)
    assert (current_version(flex), last_good_version(flex)) == ("0.9.1", "0.9.0")
    assert [flex.layout.slot(name).stat().st_ino for name in SlotName] == inodes
    assert [path.readlink() for path in (flex.layout.current, flex.layout.last_good)] == links
    assert all(slots.intact(flex.layout, flex.layout.slot(name)) for name in SlotName)
    assert_ready_for_upgrades(flex)


def test_with_nothing_to_adopt_nothing_is_made(bare: World) -> None:
    before = snapshot(bare.top)
    with pytest.raises(Refused, match="nothing to adopt") as refused:
        install(bare.host(), None, start=True)
    assert refused.value.reason is Reason.BAD_CANDIDATE
    assert snapshot(bare.top) == before


def test_another_release_in_use_is_refused_and_stays(bare: World) -> None:
    install(bare.host(), bare.candidate("1.0.0"), start=True)
    other = bare.candidate("1.1.0")
    before = snapshot(bare.top)
    with pytest.raises(Refused, match="use `hostsync upgrade PATH`") as refused:
        install(bare.host(), other, start=True)
    assert refused.value.reason is Reason.NOT_OURS
    assert snapshot(bare.top) == before


@pytest.mark.parametrize("place", ["command", "blue", "green", "current", "last-good"])
def test_a_directory_in_the_way_is_refused_before_anything_is_changed(
    flex: World, place: str
) -> None:
    layout = flex.layout
    path = (
        flex.agent.commands[0].path
        if place == "command"
        else layout.root / f"aks-flex-node-{place}"
    )
    (path / "inside").mkdir(parents=True)
    candidate = flex.candidate("1.0.0")
    before = snapshot(flex.top)
    with pytest.raises(Refused, match=str(path)) as refused:
        install(flex.host(), candidate, start=True)
    assert refused.value.reason is Reason.IN_THE_WAY
    assert snapshot(flex.top) == before


@pytest.mark.parametrize("place", ["current", "last-good"])
def test_a_file_where_a_link_of_the_slots_belongs_is_refused_and_stays(
    flex: World, place: str
) -> None:
    path = put_program(flex.layout.root / f"aks-flex-node-{place}", "0.8.0")
    with pytest.raises(Refused, match=str(path)):
        install(flex.host(), flex.candidate("1.0.0"), start=True)
    assert "0.8.0" in path.read_text()


@pytest.mark.parametrize(
    "space",
    [
        Space(device=1, free=1 << 19, read_only=False, noexec=False),
        Space(device=1, free=1 << 40, read_only=True, noexec=False),
        Space(device=1, free=1 << 40, read_only=False, noexec=True),
    ],
    ids=["full", "read-only", "noexec"],
)
def test_a_filesystem_that_cannot_take_the_release_is_refused(bare: World, space: Space) -> None:
    candidate = bare.candidate("1.0.0")
    before = snapshot(bare.top)
    host = bare.host()
    assert isinstance(host.probe, PlayedProbe)
    host.probe.space_now = space
    with pytest.raises(Refused):
        install(host, candidate, start=True)
    assert snapshot(bare.top) == before


def test_a_release_that_does_not_run_here_is_refused_and_leaves_no_trace(bare: World) -> None:
    broken = bare.candidate("1.0.0", entry="#!/bin/sh\necho no luck >&2\nexit 3\n")
    with pytest.raises(Refused, match="status 3: no luck"):
        install(bare.host(), broken, start=True)
    assert list(bare.layout.root.iterdir()) == []
    install(bare.host(), bare.candidate("1.0.1"), start=True)
    assert_ready_for_upgrades(bare)


def test_a_machine_that_cannot_follow_is_told_and_the_host_is_installed(bare: World) -> None:
    bare.machines.mirror_fails = True
    done = install(bare.host(), bare.candidate("1.0.0"), start=True)
    assert len(done.problems) == 1
    assert "broken" in done.problems[0]
    assert current_version(bare) == "1.0.0"


def test_a_current_release_that_was_damaged_can_be_repaired(bare: World) -> None:
    install(bare.host(), bare.candidate("1.0.0"), start=True)
    program = bare.layout.program(bare.layout.current.resolve())
    program.write_text("damaged")
    bare.layout.seal(bare.layout.current.resolve()).unlink()
    with pytest.raises(Refused, match="hostsync install PATH") as refused:
        switch.upgrade(bare.host(), bare.candidate("1.1.0"), Options())
    assert refused.value.reason is Reason.NOT_INSTALLED
    install(bare.host(), bare.candidate("1.0.0"), start=True)
    assert slots.intact(bare.layout, bare.layout.current.resolve())
    assert_ready_for_upgrades(bare)


def test_units_written_just_before_a_kill_are_read_by_systemd_after_the_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SlotKind.BUNDLE)

    def killed() -> None:
        raise Killed

    monkeypatch.setattr(type(world.systemd), "reload", lambda self: killed())
    with pytest.raises(Killed):
        install(world.host(), world.candidate("1.0.0"), start=True)
    monkeypatch.undo()
    install(world.host(), world.candidate("1.0.0"), start=True)
    assert "reload" in world.systemd.requests
