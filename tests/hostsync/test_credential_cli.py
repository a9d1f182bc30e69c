"""The credential on the command line of a real process: published, or refused by its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostsync.command import CommandLine, command_line
from tests.hostsync.test_credential import CANARY, SECRET_FILE, put
from tests.hostsync.zygote import Zygote

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def host(tmp_path: Path, zygote: Zygote) -> Iterator[CommandLine]:
    with command_line(tmp_path, zygote) as line:
        yield line.installed()


def test_a_sync_publishes_what_is_new_and_takes_away_what_is_gone(host: CommandLine) -> None:
    shared = host.top / "state/credential"
    assert host.run("sync").status == 0
    assert not shared.exists()
    put(host.top / "client-secret", CANARY)
    put(host.top / "credential.toml", SECRET_FILE)
    assert host.run("sync").status == 0
    assert sorted(path.name for path in shared.iterdir()) == ["client-secret", "credential.toml"]
    (host.top / "credential.toml").unlink()
    assert host.run("sync").status == 0
    assert list(shared.iterdir()) == []


def test_a_file_that_cannot_be_used_is_a_configuration_error_by_its_key(host: CommandLine) -> None:
    put(host.top / "credential.toml", f'client_secrte = "{CANARY}"\n')
    ran = host.run("--output", "json", "sync")
    assert (ran.status, ran.error["code"]) == (2, "configuration")
    assert "client_secrte" in ran.err
    assert CANARY not in ran.out + ran.err
    assert not (host.top / "state/credential").exists()


def test_an_installation_shares_it_too(host: CommandLine) -> None:
    put(host.top / "credential.toml", 'login = "msi"\n')
    assert host.run("install", "--no-start").status == 0
    assert (host.top / "state/credential/credential.toml").read_text() == 'login = "msi"\n'
