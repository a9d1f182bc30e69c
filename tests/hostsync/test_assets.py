"""Service assets: rendered for this host, written only where they differ."""

import configparser
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync import assets
from hostsync.assets import ASSETS_INSIDE, PLACES, Asset
from hostsync.config import Config, hostsync_agent
from hostsync.errors import DiskError
from tests.hostsync.world import SHARE, KillableDisk

AGENT = hostsync_agent(Path("/opt/hostsync"), Path("/usr/local/bin"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        agents={AGENT.name: AGENT}, state_root=Path("/srv/state"), unit_root=tmp_path / "units"
    )


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release that carries the project's own assets."""
    inside = tmp_path / "release" / ASSETS_INSIDE
    inside.mkdir(parents=True)
    for name in PLACES:
        (inside / name).write_bytes((SHARE / name).read_bytes())
    return tmp_path / "release"


def test_assets_name_the_paths_of_this_host(config: Config, release: Path) -> None:
    found = {a.path.name: a.content.decode() for a in assets.of_release(config, AGENT, release)}
    assert "ExecStart=/opt/hostsync/current/bin/hostsync daemon\n" in found["hostsync.service"]
    judge = found["hostsync-judge.service"]
    assert "ExecStart=/opt/hostsync/last-good/bin/hostsync judge\n" in judge
    assert "ConditionPathExistsGlob=/srv/state/*/record.json\n" in judge
    drop_in = "ExecStartPre=-/opt/hostsync/current/bin/hostsync sync --before-boot %i\n"
    assert drop_in in found["50-hostsync.conf"]
    assert not any("@SLOT_ROOT@" in text or "@STATE_ROOT@" in text for text in found.values())


def test_assets_have_their_places_beneath_the_unit_root(config: Config, release: Path) -> None:
    wanted = assets.of_release(config, AGENT, release)
    assert {str(a.path.relative_to(config.unit_root)) for a in wanted} == {
        "hostsync.service", "hostsync-judge.service", "systemd-nspawn@.service.d/50-hostsync.conf",
    }  # fmt: skip


def test_every_shipped_asset_is_a_unit_file_and_only_known_marks_are_replaced(
    config: Config, release: Path
) -> None:
    for asset in assets.of_release(config, AGENT, release):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read_string(asset.content.decode())
        assert set(parser.sections()) <= {"Unit", "Service", "Install"}


def test_what_is_missing_or_differs_is_written_and_the_rest_is_left(
    config: Config, release: Path
) -> None:
    disk = KillableDisk()
    wanted = assets.of_release(config, AGENT, release)
    written = assets.converge(disk, wanted)
    assert written == tuple(a.path for a in wanted)
    assert all(a.path.read_bytes() == a.content for a in wanted)
    assert all(a.path.stat().st_mode & 0o777 == 0o644 for a in wanted)
    changes = disk.changes
    assert assets.converge(disk, wanted) == ()
    assert disk.changes == changes
    wanted[0].path.write_text("altered")
    assert assets.converge(disk, wanted) == (wanted[0].path,)


def test_during_a_trial_only_missing_assets_are_written(config: Config, release: Path) -> None:
    wanted = assets.of_release(config, AGENT, release)
    wanted[0].path.parent.mkdir(parents=True)
    wanted[0].path.write_bytes(b"of last-good")
    written = assets.converge(KillableDisk(), wanted, missing_only=True)
    assert written == tuple(a.path for a in wanted[1:])
    assert wanted[0].path.read_bytes() == b"of last-good"


@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_release_that_lacks_an_asset_is_told_before_anything_is_written(
    config: Config, release: Path, name: str
) -> None:
    (release / ASSETS_INSIDE / name).unlink()
    with pytest.raises(DiskError, match=f"{release} lacks the service asset {name}"):
        assets.of_release(config, AGENT, release)
    assert not config.unit_root.exists()


def test_something_else_at_an_assets_path_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.service").mkdir()
    with pytest.raises(DiskError, match=f"cannot read {tmp_path}/x.service: Is a directory"):
        assets.converge(KillableDisk(), (Asset(path=tmp_path / "x.service", content=b""),))


def test_another_slot_root_gives_other_assets(config: Config, release: Path) -> None:
    elsewhere = replace(AGENT, layout=replace(AGENT.layout, root=Path("/srv/agents")))
    here = assets.of_release(config, AGENT, release)
    there = assets.of_release(config, elsewhere, release)
    assert [a.path for a in here] == [a.path for a in there]
    assert all(a.content != b.content for a, b in zip(here, there, strict=True))
