"""The host's credential in its machines: by bind, by copy, or not at all, and then with the reason.

Whatever happens, the secret lies in no rootfs but as a copy that the configuration asked for.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync.credential import REASON_NAME
from hostsync.errors import MachineError
from hostsync.layout import CREDENTIAL_INSIDE
from hostsync.model import SlotKind
from hostsync.ports import Seen, View, Worker
from hostsync.sharing import Share, Shared, Way, look, refresh, share
from tests.hostsync.test_credential import CANARY, SECRET_FILE, put
from tests.hostsync.world import PlayedMachines, World, installed, make_world

COPIES = {"credential.toml": SECRET_FILE.encode(), "client-secret": CANARY.encode()}


@pytest.fixture
def host(tmp_path: Path) -> World:
    """A host with 1.0.0 and a credential, whose machine may have it bound."""
    world = installed(make_world(tmp_path, SlotKind.BUNDLE))
    (tmp_path / "etc").mkdir()
    put(tmp_path / "etc/client-secret", CANARY)
    put(source(world), SECRET_FILE)
    return world


def source(world: World) -> Path:
    return world.top / "etc/credential.toml"


def shared(world: World, name: str = "kube1") -> Shared:
    """Share with one machine, as `hostsync sync` does."""
    host = world.host()
    refresh(host.fs, host.config)
    return share(host.machines, Share.of(host.config), world.machines.workers[name])


def looked(world: World, name: str = "kube1") -> Shared:
    host = world.host()
    return look(host.machines, Share.of(host.config), world.machines.workers[name])


def inside(world: World, name: str = "kube1") -> dict[str, bytes]:
    """What lies in a machine's rootfs at the credential's place, whatever is bound over it."""
    place = world.inside(name, CREDENTIAL_INSIDE)
    return {p.name: p.read_bytes() for p in place.iterdir()} if place.exists() else {}


def binds(world: World, name: str = "kube1") -> list[Path]:
    return world.machines.bound_at.get((name, CREDENTIAL_INSIDE), [])


def allow_copies(world: World) -> None:
    world.policy = replace(world.policy, credential_copy=True)


def distrust(world: World, why: str = "it has a user namespace of its own") -> None:
    worker = world.machines.workers["kube1"]
    world.machines.workers["kube1"] = replace(worker, bindable=False, why_not=why)


def leaks(world: World) -> list[Path]:
    """Files of any rootfs that hold the secret."""
    files = [p for p in (world.top / "machines").rglob("*") if p.is_file() and not p.is_symlink()]
    return [path for path in files if CANARY.encode() in path.read_bytes()]


def test_a_trusted_machine_has_it_bound_and_nothing_of_it_in_its_rootfs(host: World) -> None:
    assert shared(host) == Shared(way=Way.BIND)
    assert binds(host) == [host.host().config.credential_root]
    assert inside(host) == {}
    assert leaks(host) == []


def test_a_bind_is_never_stacked_on_one_that_is_there(host: World) -> None:
    for _ in range(3):
        shared(host)
    assert len(binds(host)) == 1


def test_the_mount_point_is_made_beforehand_and_by_us(host: World) -> None:
    """machined would make it, with a mode of its own."""
    shared(host)
    place = host.inside("kube1", CREDENTIAL_INSIDE)
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_without_a_credential_no_machine_is_touched(host: World) -> None:
    source(host).unlink()
    assert shared(host) == Shared(way=Way.NONE)
    assert not host.inside("kube1", CREDENTIAL_INSIDE).exists()
    assert host.machines.bound_at == {}
    assert not host.host().config.credential_root.exists()


def test_a_machine_that_is_not_trusted_gets_neither_bind_nor_copy_but_the_reason(
    host: World,
) -> None:
    distrust(host)
    assert shared(host) == Shared(way=Way.NONE, why="it has a user namespace of its own")
    assert binds(host) == []
    assert inside(host) == {REASON_NAME: b"it has a user namespace of its own\n"}
    assert leaks(host) == []


def test_a_copy_is_made_only_where_it_is_allowed_and_is_roots_alone(host: World) -> None:
    distrust(host)
    shared(host)
    allow_copies(host)
    assert shared(host) == Shared(way=Way.COPY)
    assert inside(host) == COPIES
    place = host.inside("kube1", CREDENTIAL_INSIDE)
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


@pytest.mark.root
def test_a_copy_belongs_to_the_root_that_the_machine_has(host: World) -> None:
    distrust(host)
    allow_copies(host)
    os.chown(host.top / "machines/kube1", 65536, 65536)
    shared(host)
    place = host.inside("kube1", CREDENTIAL_INSIDE)
    assert {path.stat().st_uid for path in place.iterdir()} == {65536}


def test_a_trusted_machine_gets_no_copy_even_where_they_are_allowed(host: World) -> None:
    allow_copies(host)
    assert shared(host) == Shared(way=Way.BIND)
    assert leaks(host) == []


def test_a_copy_goes_once_the_machine_may_have_the_bind(host: World) -> None:
    allow_copies(host)
    host.machines.bind_refused = "no propagation"
    assert shared(host).way is Way.COPY
    assert leaks(host) != []
    host.machines.bind_refused = ""
    assert shared(host) == Shared(way=Way.BIND)
    assert leaks(host) == []


def test_a_copy_goes_once_copies_are_no_longer_allowed(host: World) -> None:
    distrust(host)
    allow_copies(host)
    shared(host)
    host.policy = replace(host.policy, credential_copy=False)
    assert looked(host).problem
    assert shared(host).way is Way.NONE
    assert leaks(host) == []


def test_a_bind_that_is_refused_is_a_problem_with_its_reason(host: World) -> None:
    host.machines.bind_refused = "no propagation"
    found = shared(host)
    assert (found.way, found.why) == (Way.NONE, "no propagation")
    assert "machine kube1" in found.problem
    assert inside(host) == {REASON_NAME: b"no propagation\n"}


def test_removed_on_the_host_is_removed_in_every_machine(host: World) -> None:
    bound = host.host().config.credential_root
    shared(host)
    source(host).unlink()
    assert shared(host) == Shared(way=Way.NONE)
    assert os.listdir(bound) == []
    distrust(host)
    allow_copies(host)
    put(source(host), SECRET_FILE)
    host.machines.bound_at.clear()
    shared(host)
    assert inside(host) == COPIES
    source(host).unlink()
    shared(host)
    assert inside(host) == {}


def test_a_rotation_is_in_the_bound_directory_and_in_the_copy(host: World) -> None:
    shared(host)
    put(source(host).with_name("client-secret"), "rotated")
    shared(host)
    assert (host.host().config.credential_root / "client-secret").read_text() == "rotated"
    host.machines.bound_at.clear()
    distrust(host)
    allow_copies(host)
    shared(host)
    put(source(host).with_name("client-secret"), "again")
    shared(host)
    assert inside(host)["client-secret"] == b"again"


@pytest.mark.parametrize("damage", ["altered", "mode", "link", "directory", "extra", "gone"])
def test_what_a_guest_does_to_its_copy_is_found_and_mended(host: World, damage: str) -> None:
    distrust(host)
    allow_copies(host)
    shared(host)
    secret = host.inside("kube1", CREDENTIAL_INSIDE) / "client-secret"
    precious = host.top / "precious"
    precious.write_text("keep")
    match damage:
        case "altered":
            secret.write_text("altered")
        case "mode":
            secret.chmod(0o644)
        case "link":
            secret.unlink()
            secret.symlink_to(precious)
        case "directory":
            secret.unlink()
            secret.mkdir()
            (secret / "x").write_text("x")
        case "extra":
            secret.with_name("extra").write_text("x")
        case "gone":
            secret.unlink()
    assert looked(host).problem
    assert shared(host) == Shared(way=Way.COPY)
    assert inside(host) == COPIES
    assert precious.read_text() == "keep"


def test_a_link_at_a_parent_of_the_copy_is_refused_and_not_followed(host: World) -> None:
    distrust(host)
    allow_copies(host)
    outside = host.top / "outside"
    outside.mkdir()
    place = host.inside("kube1", CREDENTIAL_INSIDE.parent)
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with pytest.raises(MachineError, match="var/lib/hostsync"):
        shared(host)
    assert os.listdir(outside) == []
    assert "var/lib/hostsync" in looked(host).problem


class Misbound(PlayedMachines):
    """The credential is bound, but not as it should be."""

    as_seen = Seen(view=View.BIND, read_only=False, depth=1)

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        return self.as_seen if at is not None else super().see(worker, root)


@pytest.mark.parametrize(
    ("seen", "bindable", "said"),
    [
        (Seen(view=View.BIND, read_only=False, depth=1), True, "bound writable"),
        (Seen(view=View.BIND, read_only=True, depth=2), True, "2 times over"),
        (Seen(view=View.BIND, read_only=True, depth=1), False, "although"),
    ],
    ids=["writable", "stacked", "not trusted"],
)
def test_a_bind_that_is_not_as_it_should_be_is_a_problem(
    host: World, seen: Seen, bindable: bool, said: str
) -> None:
    old = host.machines
    host.machines = Misbound(old.workers, old.layout)
    host.machines.bound = old.bound
    host.machines.as_seen = seen
    if not bindable:
        distrust(host)
    assert said in shared(host).problem


class NoPlace(PlayedMachines):
    """machined cannot be asked."""

    def see(self, worker: Worker, root: Path, at: Path | None = None) -> Seen:
        raise MachineError("machined is away")


def test_a_machine_that_cannot_be_looked_at_is_a_problem_and_no_crash(host: World) -> None:
    shared(host)
    host.machines = NoPlace(host.machines.workers, host.machines.layout)
    assert looked(host).problem == "machined is away"
