"""The credential that the host shares: what is read, what is refused, what machines are given."""

from __future__ import annotations

import os
import stat
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from credential_shim import configuration
from hostsync import credential
from hostsync.credential import laid_out, lay_out, read
from hostsync.errors import ConfigError
from hostsync.fs import Disk
from tests.hostsync.world import KillableDisk, Killed

CANARY = "c4n4ry-s3cr3t"
SECRET_FILE = 'client_secret_file = "client-secret"\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with a secret, and one beside it."""
    (tmp_path / "etc").mkdir()
    put(tmp_path / "etc/client-secret", CANARY)
    return put(tmp_path / "etc/credential.toml", SECRET_FILE)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "state/credential"


def put(path: Path, content: str, mode: int = 0o600) -> Path:
    """Replace a file by renaming, as one should."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(content)
    new.chmod(mode)
    return new.rename(path)


def refusal(source: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(source)
    chain = (caught.value, caught.value.__cause__, caught.value.__context__)
    assert not [each for each in chain if CANARY in str(each)]
    return str(caught.value)


def test_the_host_reads_the_very_keys_that_the_plugin_does() -> None:
    assert set(configuration.KEYS) == credential.KEYS
    assert set(configuration.FILES) == {*credential.SECRET_FILES, *credential.PUBLIC_FILES}


def test_what_is_shared_is_the_file_and_what_it_names_beside_it(source: Path) -> None:
    put(source.parent / "config.toml", "[machines]\n", 0o644)
    put(source.parent / "other-secret", CANARY)
    assert read(source) == {
        "credential.toml": SECRET_FILE.encode(),
        "client-secret": CANARY.encode(),
    }


def test_a_path_of_the_machines_own_is_not_looked_at_here(source: Path) -> None:
    text = 'ca_file = "/etc/ssl/certs/ca.pem"\nclient_secret = "x"\n'
    put(source, text)
    assert read(source) == {"credential.toml": text.encode()}


def test_a_host_without_the_file_shares_nothing_and_makes_nothing(
    source: Path, shared: Path
) -> None:
    source.unlink()
    assert lay_out(Disk(), source, shared) is False
    assert not shared.exists()
    assert not shared.parent.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
@pytest.mark.parametrize("name", ["credential.toml", "client-secret"])
def test_a_file_that_others_can_read_is_refused_naming_the_mode(
    source: Path, mode: int, name: str
) -> None:
    (source.parent / name).chmod(mode)
    said = refusal(source)
    assert f"{source.parent}/{name} has mode {mode:04o}" in said
    assert "chmod 600" in said


@pytest.mark.root
@pytest.mark.parametrize("name", ["credential.toml", "client-secret"])
def test_a_file_of_another_user_is_refused(source: Path, name: str) -> None:
    os.chown(source.parent / name, 12345, -1)
    assert "12345" in refusal(source)


def test_a_certificate_of_an_authority_may_be_public(source: Path) -> None:
    put(source.parent / "ca.pem", "PEM", 0o644)
    put(source, 'ca_file = "ca.pem"\n')
    assert set(read(source)) == {"credential.toml", "ca.pem"}


def test_a_link_a_directory_and_a_fifo_are_no_configuration(source: Path) -> None:
    source.rename(source.with_name("real"))
    source.symlink_to("real")
    assert str(source) in refusal(source)
    source.unlink()
    source.mkdir()
    assert "not a regular file" in refusal(source)
    source.rmdir()
    os.mkfifo(source, 0o600)
    assert "not a regular file" in refusal(source)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'client_secret = "{CANARY}', "is not TOML: end of document"),
        (f'client_secret = {CANARY}"', "is not TOML: line 1, column"),
        (f'"{CANARY}" = "x"', "unknown key of another form"),
        ("client_secrte = 'x'", "unknown key client_secrte"),
        ("client_secret = 1", "client_secret must be a text"),
        ("client_secret = ''", "client_secret must be a text"),
        (f"[client_secret]\nx = '{CANARY}'", "client_secret must be a text"),
        ("send_certificate_chain = 'yes'", "must be true or false"),
        ("\n", "is empty"),
        (f"# {'x' * 70_000}", "is longer than"),
        ("client_secret_file = 'absent'", "there is none"),
        ("client_secret_file = 'config.toml'", "must be the plain name"),
        ("client_secret_file = 'credential.toml'", "must be the plain name"),
        ("client_secret_file = 'NOT-SHARED'", "must be the plain name"),
        ("client_secret_file = '../shadow'", "must be the plain name"),
        ("client_secret_file = '.hidden'", "must be the plain name"),
        ("ca_file = 'a/b'", "must be the plain name"),
    ],
)
def test_what_cannot_be_used_is_refused_and_its_value_never_quoted(
    source: Path, text: str, said: str
) -> None:
    put(source, text)
    assert said in refusal(source)


def test_a_path_that_only_the_host_knows_is_refused_with_the_way_to_say_it(source: Path) -> None:
    put(source, f'client_certificate = "{source.parent}/client.pem"\n')
    said = refusal(source)
    assert "which machines do not see" in said
    assert "without its directory" in said


@pytest.mark.slow
@given(text=st.text(max_size=200))
def test_no_text_makes_the_reader_crash(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    source = tmp_path_factory.getbasetemp() / "any.toml"
    source.touch(0o600)
    source.write_text(text, errors="surrogatepass", newline="")
    with suppress(ConfigError):
        assert len(read(source)) == 1


def test_what_is_laid_out_is_roots_alone_and_repeating_it_changes_nothing(
    source: Path, shared: Path
) -> None:
    assert lay_out(Disk(), source, shared) is True
    assert laid_out(shared) == read(source)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    before = {path.name: path.stat() for path in shared.iterdir()}
    assert {stat.S_IMODE(status.st_mode) for status in before.values()} == {0o600}
    assert lay_out(Disk(), source, shared) is False
    assert {path.name: path.stat().st_ino for path in shared.iterdir()} == {
        name: status.st_ino for name, status in before.items()
    }


def test_a_file_that_was_not_changed_keeps_its_inode_when_another_is(
    source: Path, shared: Path
) -> None:
    """The plugin takes a new inode for a new secret, and asks for a new token."""
    lay_out(Disk(), source, shared)
    inode = (shared / "client-secret").stat().st_ino
    put(source, f'{SECRET_FILE}login = "spn"\n')
    assert lay_out(Disk(), source, shared) is True
    assert (shared / "client-secret").stat().st_ino == inode


def test_what_is_named_no_more_goes_and_what_others_left_there_too(
    source: Path, shared: Path
) -> None:
    lay_out(Disk(), source, shared)
    put(shared / "stranger", CANARY)
    put(shared / ".hostsync-tmp-0123", CANARY)
    put(source, 'login = "msi"\n')
    lay_out(Disk(), source, shared)
    assert os.listdir(shared) == ["credential.toml"]


def test_a_mode_that_was_widened_is_put_right(source: Path, shared: Path) -> None:
    lay_out(Disk(), source, shared)
    (shared / "client-secret").chmod(0o644)
    assert lay_out(Disk(), source, shared) is True
    assert stat.S_IMODE((shared / "client-secret").stat().st_mode) == 0o600


def test_removing_the_file_takes_it_away_and_leaves_the_directory(
    source: Path, shared: Path
) -> None:
    """The directory is bound: it is emptied, and not removed from beneath the mounts."""
    lay_out(Disk(), source, shared)
    inode = shared.stat().st_ino
    source.unlink()
    assert lay_out(Disk(), source, shared) is True
    assert os.listdir(shared) == []
    assert shared.stat().st_ino == inode


@pytest.mark.parametrize("slip", ["not toml", "", "client_secret_file = 'absent'"])
def test_a_slip_of_the_pen_leaves_the_last_good_version(
    source: Path, shared: Path, slip: str
) -> None:
    lay_out(Disk(), source, shared)
    good = laid_out(shared)
    put(source, slip)
    with pytest.raises(ConfigError):
        lay_out(Disk(), source, shared)
    assert laid_out(shared) == good


def test_a_file_never_names_what_is_not_there(source: Path, shared: Path) -> None:
    disk = KillableDisk()
    lay_out(disk, source, shared)
    put(source.parent / "next", "next")
    put(source, 'client_secret_file = "next"\n')
    lay_out(disk, source, shared)
    source.unlink()
    lay_out(disk, source, shared)
    assert [act for act in disk.log if not act.startswith("make")] == [
        "write client-secret",
        "write credential.toml",
        "write next",
        "write credential.toml",
        "remove client-secret",
        "remove credential.toml",
        "remove next",
    ]


@pytest.mark.parametrize("number", range(3))
def test_killed_at_any_change_it_names_only_what_is_there_and_is_finished_by_repeating_it(
    source: Path, shared: Path, number: int
) -> None:
    lay_out(Disk(), source, shared)
    put(source.parent / "next", "next")
    put(source, 'client_secret_file = "next"\n')
    disk = KillableDisk()
    disk.kill_at = number
    with pytest.raises(Killed):
        lay_out(disk, source, shared)
    there = laid_out(shared) or {}
    named = tomllib.loads(there["credential.toml"].decode())["client_secret_file"]
    assert there[named] in (CANARY.encode(), b"next")
    lay_out(Disk(), source, shared)
    assert laid_out(shared) == read(source)


def test_a_stamp_tells_every_change_of_the_source(source: Path, shared: Path) -> None:
    lay_out(Disk(), source, shared)
    seen = [credential.stamp(source, shared)]
    put(source.parent / "client-secret", "next")
    seen.append(credential.stamp(source, shared))
    (source.parent / "client-secret").write_text("in place")
    seen.append(credential.stamp(source, shared))
    source.chmod(0o644)
    seen.append(credential.stamp(source, shared))
    source.unlink()
    seen.append(credential.stamp(source, shared))
    assert len(set(seen)) == 5
    assert credential.stamp(source, shared) == seen[-1]


def test_nothing_to_share_has_an_empty_stamp(tmp_path: Path) -> None:
    assert credential.stamp(tmp_path / "credential.toml", tmp_path / "credential") == ()
