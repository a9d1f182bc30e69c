"""What an order does to a host, seen from outside: links, bytes, the service, the machine."""

from pathlib import Path

import pytest

from hostsync.activation import switch
from hostsync.activation.orders import settle_all
from hostsync.activation.plan import NothingToDo, Plan
from hostsync.activation.stage import Options
from hostsync.activation.switch import Switched
from hostsync.activation.trial import settle
from hostsync.errors import Busy, Failed, MachineError, Reason, Refused
from hostsync.model import SlotKind, SlotName
from hostsync.ports import Space, UnitVerb, Worker
from hostsync.state import HistoryLine, Outcome
from hostsync.sync import synchronise
from tests.hostsync.world import PlayedProbe, World, installed, make_world, script, snapshot

OPTIONS = Options()


def order(world: World, version: str, behaviour: str = "good", **programs: str) -> HistoryLine:
    """Give an order and play the judge; each in a process of its own."""
    done = switch.upgrade(world.host(), world.candidate(version, behaviour, **programs), OPTIONS)
    assert isinstance(done, Switched)
    line = settle(world.host())
    assert line is not None
    return line


def current_version(world: World) -> str:
    seal = world.layout.seal(world.layout.current.resolve()).read_text()
    return seal.partition("version=")[2].partition("\n")[0]


def last_good_version(world: World) -> str:
    seal = world.layout.seal(world.layout.last_good.resolve()).read_text()
    return seal.partition("version=")[2].partition("\n")[0]


def lasting(world: World) -> dict[str, str]:
    """Everything that outlives an order but its own memory of it."""
    return snapshot(world.top, but=("state", "candidates", "run"))


def test_a_good_release_becomes_current_and_the_previous_one_last_good(world: World) -> None:
    line = order(world, "1.1.0")
    assert line.outcome is Outcome.COMPLETE
    assert (current_version(world), last_good_version(world)) == ("1.1.0", "1.0.0")
    assert world.systemd.process is not None
    assert "1.1.0" in world.systemd.process.program.read_text()
    assert not list(world.layout.root.glob(".hostsync*"))
    assert world.host().record.load() is None


def test_links_are_relative_so_that_they_mean_the_same_in_a_machine(world: World) -> None:
    order(world, "1.1.0")
    for link in (world.layout.current, world.layout.last_good):
        assert "/" not in str(link.readlink())
    for command in world.agent.commands:
        assert not command.path.readlink().is_absolute()


def test_the_mirror_in_the_machine_equals_the_slot_root_of_the_host(world: World) -> None:
    order(world, "1.1.0")
    mirror = snapshot(world.inside("kube1", world.layout.root))
    wanted = mirror.pop("WANTED")
    assert mirror == snapshot(world.layout.root)
    seal = world.layout.seal(world.layout.current.resolve())
    assert wanted.split()[1] == seal.read_bytes().hex()


@pytest.mark.parametrize("behaviour", ["crash", "exit0", "hang", "late-crash"])
def test_a_release_that_fails_is_rolled_back_to_exactly_what_was_there(
    world: World, behaviour: str
) -> None:
    if behaviour == "hang" and world.layout.kind is SlotKind.FILE:
        pytest.skip("a service that need not report cannot be late to report")
    order(world, "1.1.0")
    before = lasting(world)
    line = order(world, "1.2.0", behaviour)
    assert line.outcome is Outcome.ROLLED_BACK
    assert lasting(world) == before
    assert (current_version(world), last_good_version(world)) == ("1.1.0", "1.0.0")
    assert world.systemd.process is not None
    assert "1.1.0" in world.systemd.process.program.read_text()
    assert line.evidence == ["the daemon's last words"]


def test_a_slot_always_holds_a_release_while_another_is_brought_back(tmp_path: Path) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    order(world, "1.1.0")
    count, seen = world.disk.count, []

    def look(verb: str, path: Path) -> None:
        seen.append((world.layout.slot(SlotName.BLUE) / "RELEASE").is_file())
        count(verb, path)

    switch.upgrade(world.host(), world.candidate("1.2.0", "crash"), Options())
    world.disk.count = look  # type: ignore[method-assign]
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.ROLLED_BACK
    assert len(seen) > 5
    assert all(seen)


def test_a_hang_is_rolled_back_at_its_start_deadline(world: World) -> None:
    if world.layout.kind is SlotKind.FILE:
        pytest.skip("a service that need not report cannot be late to report")
    started = world.time.now
    line = order(world, "1.1.0", "hang")
    assert "not ready within 20 s" in line.reason
    assert world.time.now - started < 20 + 3


def test_a_first_release_that_displaced_nothing_leaves_an_empty_slot_behind(world: World) -> None:
    before = lasting(world)
    order(world, "1.1.0", "crash")
    assert lasting(world) == before


def test_last_good_is_never_the_release_under_trial(world: World) -> None:
    order(world, "1.1.0")
    switch.upgrade(world.host(), world.candidate("1.2.0"), OPTIONS)
    assert (current_version(world), last_good_version(world)) == ("1.2.0", "1.1.0")


def test_the_displaced_release_is_kept_until_another_one_is_confirmed(world: World) -> None:
    order(world, "1.1.0")
    switch.upgrade(world.host(), world.candidate("1.2.0"), OPTIONS)
    (evicted,) = [p for p in world.layout.root.glob(".hostsync-evicted-*") if "REL" not in p.name]
    assert "version=1.0.0" in world.layout.seal(evicted).read_text()


def test_the_release_in_use_ordered_again_changes_nothing(world: World) -> None:
    before = snapshot(world.top)
    done = switch.upgrade(world.host(), world.candidate("1.0.0"), OPTIONS)
    assert isinstance(done, NothingToDo)
    after = snapshot(world.top)
    assert after == before


def test_a_release_that_failed_here_is_refused_by_digest_until_told_otherwise(
    world: World,
) -> None:
    order(world, "1.1.0", "crash")
    with pytest.raises(Refused) as refused:
        switch.upgrade(world.host(), world.candidate("1.1.0", "crash"), OPTIONS)
    assert refused.value.reason is Reason.KNOWN_BAD
    done = switch.upgrade(
        world.host(), world.candidate("1.1.0", "crash"), Options(allow_known_bad=True)
    )
    assert isinstance(done, Switched)


def test_a_rollback_by_hand_goes_to_last_good_and_can_be_repeated(world: World) -> None:
    order(world, "1.1.0")
    switch.roll_back(world.host(), OPTIONS)
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE
    assert (current_version(world), last_good_version(world)) == ("1.0.0", "1.1.0")


def test_a_rollback_by_hand_without_another_release_is_refused(world: World) -> None:
    with pytest.raises(Refused) as refused:
        switch.roll_back(world.host(), OPTIONS)
    assert refused.value.reason is Reason.NO_LAST_GOOD


def test_a_rollback_to_a_release_that_was_altered_is_refused(world: World) -> None:
    order(world, "1.1.0")
    program = world.layout.program(world.layout.last_good).resolve()
    program.write_text(program.read_text() + "# altered\n")
    with pytest.raises(Refused, match="digest"):
        switch.roll_back(world.host(), OPTIONS)


def test_assets_of_last_good_stay_on_disk_until_the_verdict(tmp_path: Path) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    unit = world.top / "units/hostsync.service"
    switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    assert unit.read_text().endswith("# of 1.0.0\n")
    settle(world.host())
    assert unit.read_text().endswith("# of 1.1.0\n")
    assert "reload" in world.systemd.requests


def test_an_asset_that_was_removed_is_written_before_the_switch(tmp_path: Path) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    unit = world.top / "units/hostsync.service"
    before = unit.read_bytes()
    unit.unlink()
    switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    assert unit.read_bytes() == before


def test_a_machine_keeps_its_program_while_nothing_is_installed_on_the_host(
    tmp_path: Path,
) -> None:
    world = make_world(tmp_path, SlotKind.FILE)
    copy = world.inside("kube1", world.agent.commands[0].path)
    copy.parent.mkdir(parents=True)
    copy.write_text("the copy that kubelet runs")
    host = world.host()
    (worker,) = host.machines.running()
    assert synchronise(host.machines, host.agent, worker).in_step
    assert copy.read_text() == "the copy that kubelet runs"
    assert not world.inside("kube1", world.layout.root).exists()


def test_a_service_that_the_operator_stopped_is_not_started(world: World) -> None:
    world.systemd.queue(UnitVerb.STOP, world.agent.unit)
    line = order(world, "1.1.0")
    assert line.outcome is Outcome.COMPLETE
    assert world.systemd.process is None


def test_the_start_limit_is_reset_before_each_restart_that_of_a_roll_back_too(
    world: World,
) -> None:
    order(world, "1.1.0", "crash")
    asked = [r for r in world.systemd.requests if world.agent.unit in r]
    restart = asked.index(f"RestartUnit {world.agent.unit}")
    start = len(asked) - 1 - asked[::-1].index(f"StartUnit {world.agent.unit}")
    assert asked[restart - 1] == asked[start - 1] == f"reset {world.agent.unit}"


def test_a_judge_that_does_not_start_undoes_the_switch(world: World) -> None:
    before = lasting(world)
    world.systemd.judge_result = "failed"
    with pytest.raises(Failed, match="judge"):
        switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    assert lasting(world) == before
    assert world.host().record.load() is None


def test_a_second_order_during_a_trial_is_busy_and_names_the_first(world: World) -> None:
    done = switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    assert isinstance(done, Switched)
    with pytest.raises(Busy, match=done.order):
        settle_all([world.host()])


def test_recovery_without_a_record_changes_nothing(world: World) -> None:
    before = snapshot(world.top)
    assert settle(world.host()) is None
    settle_all([world.host()])
    assert snapshot(world.top) == before


def test_a_reboot_during_a_trial_restarts_the_window_and_is_no_verdict(world: World) -> None:
    switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    world.reboot()
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


def test_a_release_whose_version_fails_only_in_the_machine_is_refused(world: World) -> None:
    before = lasting(world)
    only_here = '#!/bin/sh\n# behaviour=good\n[ -z "$MACHINE" ] || exit 127\necho agent 1.1.0\n'
    with pytest.raises(Refused, match="in machine kube1 ended with status 127") as refused:
        order(world, "1.1.0", entry=only_here)
    assert refused.value.reason is Reason.CANDIDATE_FAILS
    assert lasting(world) == before


def test_a_release_whose_version_fails_on_the_host_is_refused(world: World) -> None:
    before = lasting(world)
    with pytest.raises(Refused, match="status 3: no luck"):
        order(world, "1.1.0", entry="#!/bin/sh\necho no luck >&2\nexit 3\n")
    assert lasting(world) == before


def test_programs_that_disagree_on_their_version_are_refused(tmp_path: Path) -> None:
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    with pytest.raises(Refused, match=r"disagree.*1\.1\.0, 9\.9\.9"):
        order(world, "1.1.0", shim=script("hostsync-credential", "9.9.9", "good"))


def test_preflight_tells_the_steps_and_leaves_no_trace(world: World) -> None:
    before = snapshot(world.top)
    candidate = world.candidate("1.1.0")
    plan = switch.preflight(world.host(), candidate, OPTIONS)
    assert isinstance(plan, Plan)
    links = [step for step in plan.steps if step.act == "link"]
    assert [step.detail for step in links] == [
        f"-> {world.layout.slot(plan.previous).name}", f"-> {world.layout.slot(plan.target).name}",
    ]  # fmt: skip
    after = {p: v for p, v in snapshot(world.top).items() if not p.startswith("candidates")}
    assert after == {p: v for p, v in before.items() if not p.startswith("candidates")}


def test_preflight_runs_the_candidate(world: World) -> None:
    broken = world.candidate("1.1.0", entry="#!/bin/sh\nexit 3\n")
    with pytest.raises(Refused, match="status 3"):
        switch.preflight(world.host(), broken, OPTIONS)


def test_a_directory_in_the_way_of_a_link_is_refused_and_named(world: World) -> None:
    path = world.agent.commands[0].path
    path.unlink()
    path.mkdir()
    before = lasting(world)
    with pytest.raises(Refused, match=f"refusing to replace {path}") as refused:
        order(world, "1.1.0")
    assert refused.value.reason is Reason.IN_THE_WAY
    assert lasting(world) == before


def test_something_else_at_the_slot_is_refused_and_named(world: World) -> None:
    slot = world.layout.slot(free_slot(world))
    slot.symlink_to(world.layout.current.readlink())
    before = lasting(world)
    with pytest.raises(Refused, match="symbolic link"):
        order(world, "1.1.0")
    assert lasting(world) == before


def free_slot(world: World) -> SlotName:
    target = world.layout.slot_of(str(world.layout.current.readlink()))
    assert target is not None
    return target.other


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (Space(device=1, free=1 << 20, read_only=False, noexec=False), Reason.NO_SPACE),
        (Space(device=1, free=1 << 40, read_only=True, noexec=False), Reason.READ_ONLY),
        (Space(device=1, free=1 << 40, read_only=False, noexec=True), Reason.NO_EXEC),
    ],
)
def test_a_filesystem_that_cannot_take_the_release_is_refused_before_anything(
    world: World, space: Space, reason: Reason
) -> None:
    before = lasting(world)
    host = world.host()
    assert isinstance(host.probe, PlayedProbe)
    host.probe.space_now = space
    with pytest.raises(Refused) as refused:
        switch.upgrade(host, world.candidate("1.1.0"), OPTIONS)
    assert refused.value.reason is reason
    assert lasting(world) == before


def test_a_machine_that_refuses_the_bind_is_served_by_the_mirror(world: World) -> None:
    world.machines.bound.clear()
    world.machines.bind_refused = "no propagation"
    line = order(world, "1.1.0")
    assert line.outcome is Outcome.COMPLETE
    inside = world.inside("kube1", world.layout.current)
    assert "version=1.1.0" in world.layout.seal(inside.resolve()).read_text()


def test_a_machine_that_cannot_follow_stops_the_order_before_the_switch(world: World) -> None:
    before = lasting(world)
    world.machines.mirror_fails = True
    with pytest.raises(MachineError, match="broken"):
        order(world, "1.1.0")
    world.machines.mirror_fails = False
    assert lasting(world) == before


def test_a_machine_that_cannot_follow_is_forgiven_on_request(world: World) -> None:
    world.machines.mirror_fails = True
    switch.upgrade(world.host(), world.candidate("1.1.0"), Options(best_effort=True))
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE


def test_a_machine_that_starts_skewed_during_the_trial_is_brought_in_step(world: World) -> None:
    switch.upgrade(world.host(), world.candidate("1.1.0"), OPTIONS)
    rootfs = world.top / "machines/kube2"
    rootfs.mkdir()
    world.machines.workers["kube2"] = Worker(name="kube2", rootfs=rootfs, bindable=True)
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.COMPLETE
    inside = world.inside("kube2", world.layout.current)
    assert "version=1.1.0" in world.layout.seal(inside.resolve()).read_text()


def test_a_last_good_that_fails_too_ends_not_restored_and_is_not_tried_again(
    world: World,
) -> None:
    switch.upgrade(world.host(), world.candidate("1.1.0", "crash"), OPTIONS)
    program = world.layout.program(world.layout.last_good).resolve()
    program.write_text(program.read_text().replace("behaviour=good", "behaviour=crash"))
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.NOT_RESTORED
    assert world.host().record.load() is None
    assert settle(world.host()) is None


def test_a_last_good_that_is_gone_falls_back_to_any_other_release(world: World) -> None:
    order(world, "1.1.0")
    switch.upgrade(world.host(), world.candidate("1.2.0", "crash"), OPTIONS)
    world.layout.seal(world.layout.last_good.resolve()).unlink()
    line = settle(world.host())
    assert line is not None
    assert line.outcome is Outcome.NOT_RESTORED
    assert current_version(world) == "1.0.0"
