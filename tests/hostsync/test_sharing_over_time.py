"""The credential in machines over time: what status says, what the daemon does, before a boot."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hostsync import render
from hostsync.cli.services import prepare
from hostsync.credential import REASON_NAME
from hostsync.errors import HostsyncError
from hostsync.layout import CREDENTIAL_INSIDE
from hostsync.model import SlotKind
from hostsync.ports import Worker
from hostsync.sharing import Share, refresh, share
from hostsync.status import gather
from tests.hostsync.test_credential import CANARY, SECRET_FILE, put
from tests.hostsync.test_daemon import Life, handlers
from tests.hostsync.test_review import Boot
from tests.hostsync.test_sharing import (
    COPIES,
    allow_copies,
    binds,
    distrust,
    host,
    inside,
    leaks,
    shared,
    source,
)
from tests.hostsync.world import PlayedMachines, World, make_world

__all__ = ["handlers", "host"]


# --- status and the daemon ----------------------------------------------------------------------


def test_status_says_how_each_machine_has_it_and_never_what_it_is(host: World) -> None:
    host.machines.workers["kube2"] = Worker(
        name="kube2", rootfs=None, bindable=False, why_not="the configuration says mirror only"
    )
    shared(host)
    status = gather(host.host())
    text = render.status_text(status)
    assert "by bind, in step, credential by bind" in text
    assert "credential none: the configuration says mirror only" in text
    assert CANARY not in text + render.to_json(status)


def test_status_tells_a_file_that_cannot_be_used_and_that_the_last_good_one_stays(
    host: World,
) -> None:
    shared(host)
    assert gather(host.host()).problems == []
    source(host).chmod(0o644)
    (problem,) = gather(host.host()).problems
    assert "has mode 0644" in problem
    assert "keep the last version" in problem
    with suppress(HostsyncError):
        shared(host)
    assert (host.host().config.credential_root / "client-secret").read_text() == CANARY


def test_status_tells_that_machines_do_not_have_the_newest_yet(host: World) -> None:
    assert "`hostsync sync` does it" in gather(host.host()).problems[0]
    shared(host)
    put(source(host).with_name("client-secret"), "rotated")
    assert "`hostsync sync` does it" in gather(host.host()).problems[0]


def test_the_daemon_shares_at_its_start_and_a_rotation_within_seconds(host: World) -> None:
    bound = host.host().config.credential_root
    found: list[str] = []

    def rotate() -> None:
        put(source(host).with_name("client-secret"), "rotated")

    life = Life(host, acts=[rotate, lambda: found.append((bound / "client-secret").read_text())])
    life.run()
    assert len(binds(host)) == 1
    assert found == ["rotated"]
    assert sum(seconds for _, seconds in life.waits[:2]) <= 10


def test_the_daemon_tells_machine_and_way_and_no_secret(host: World) -> None:
    Life(host, acts=[lambda: None] * 3).run()
    told = [f"{each.object} {each.detail}" for each in host.events if each.act == "share"]
    assert told == [f"{source(host)} ", "machine kube1 by bind"]
    assert not [each for each in host.events if CANARY in repr(each)]


def test_the_daemon_shares_with_a_machine_that_starts(host: World) -> None:
    def start_kube2() -> str:
        rootfs = host.top / "machines/kube2"
        rootfs.mkdir()
        host.machines.workers["kube2"] = Worker(name="kube2", rootfs=rootfs, bindable=True)
        return "kube2"

    Life(host, acts=[start_kube2]).run()
    assert len(binds(host, "kube2")) == 1


def test_the_daemon_mends_a_lost_bind_and_a_damaged_copy_at_its_next_look(host: World) -> None:
    allow_copies(host)
    worker = replace(host.machines.workers["kube1"], name="kube2", bindable=False, why_not="x")
    rootfs = host.top / "machines/kube2"
    rootfs.mkdir()
    host.machines.workers["kube2"] = replace(worker, rootfs=rootfs)

    def lose() -> None:
        host.machines.bound_at.clear()
        (host.inside("kube2", CREDENTIAL_INSIDE) / "client-secret").write_text("altered")

    Life(host, acts=[lose, *[lambda: None] * 13]).run()
    assert len(binds(host)) == 1
    assert inside(host, "kube2") == COPIES


def test_the_daemon_goes_on_with_a_file_that_cannot_be_used(host: World) -> None:
    def slip() -> None:
        put(source(host), "not toml")

    Life(host, acts=[slip, *[lambda: None] * 4]).run()
    assert (host.host().config.credential_root / "client-secret").read_text() == CANARY
    failed = [each.detail for each in host.events if each.stage == "failed"]
    assert failed
    assert all("is not TOML" in detail for detail in failed)


# --- before a machine boots ---------------------------------------------------------------------


class BootTime(PlayedMachines):
    """Says of a machine about to boot whether its settings bind the credential."""

    settings_bind = True

    def bind_at_boot(
        self, name: str, roots: tuple[Path, ...], credential: Path | None = None
    ) -> bool:
        return self.settings_bind and credential is not None and credential.exists()


@pytest.mark.parametrize(
    ("settings_bind", "copies", "expected"),
    [
        (True, False, {}),
        (True, True, {}),
        (False, True, set(COPIES)),
        (False, False, {REASON_NAME}),
    ],
)
def test_before_boot_a_machine_gets_what_it_will_not_have_bound(
    host: World, settings_bind: bool, copies: bool, expected: set[str]
) -> None:
    machines = BootTime(host.machines.workers, host.machines.layout)
    machines.settings_bind = settings_bind
    host.machines = machines
    host.policy = replace(host.policy, credential_copy=copies)
    prepare(Boot(host), "kube1")
    assert set(inside(host)) == set(expected)
    assert bool(leaks(host)) is (copies and not settings_bind)


# --- in any order -------------------------------------------------------------------------------


def _rotate(world: World) -> None:
    put(source(world).with_name("client-secret"), f"{CANARY} rotated")


def _trust(world: World) -> None:
    worker = world.machines.workers["kube1"]
    world.machines.workers["kube1"] = replace(worker, bindable=True, why_not="")


def _policy(*, copies: bool) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.policy = replace(world.policy, credential_copy=copies)

    return change


def _refused(reason: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.machines.bind_refused = reason

    return change


def _share_or_tell(world: World) -> None:
    """What the daemon does: machines are served whether or not the source can be used."""
    host = world.host()
    told = []
    try:
        refresh(host.fs, host.config)
    except HostsyncError as error:
        told.append(str(error))
    found = share(host.machines, Share.of(host.config), world.machines.workers["kube1"])
    assert CANARY not in " ".join((*told, found.why, found.problem))


ACTS: Mapping[str, Callable[[World], object]] = {
    "rotate": _rotate,
    "remove": lambda world: source(world).unlink(missing_ok=True),
    "restore": lambda world: put(source(world), SECRET_FILE),
    "slip": lambda world: put(source(world), f"{CANARY} is not TOML"),
    "widen": lambda world: source(world).with_name("client-secret").chmod(0o644),
    "distrust": distrust,
    "trust": _trust,
    "copies": _policy(copies=True),
    "no copies": _policy(copies=False),
    "refuse": _refused("no propagation"),
    "accept": _refused(""),
    "reboot": lambda world: world.machines.bound_at.clear(),
    "share": _share_or_tell,
}


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(acts=st.lists(st.sampled_from(sorted(ACTS)), max_size=12))
def test_after_any_history_the_secret_is_where_it_may_be_and_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    world = make_world(tmp_path_factory.mktemp("any"), SlotKind.BUNDLE)
    (world.top / "etc").mkdir()
    put(world.top / "etc/client-secret", CANARY)
    put(source(world), SECRET_FILE)
    for act in [*acts, "accept", "share"]:
        ACTS[act](world)
    assert len(binds(world)) <= 1
    assert bool(leaks(world)) <= (world.policy.credential_copy and not binds(world))
    laid_out = world.host().config.credential_root
    if world.machines.workers["kube1"].bindable and laid_out.exists() and os.listdir(laid_out):
        assert len(binds(world)) == 1
        assert leaks(world) == []
