"""The configuration that a host shares with its machine: found, told apart, and in its place."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from credential_shim.arguments import DEFAULT_CONFIG, SHARED_CONFIG
from hostsync.layout import CREDENTIAL_INSIDE
from tests.credential_shim.entra_server import CLIENT, SECRET, TENANT, EntraServer
from tests.credential_shim.slot_root import SERVER_ID, Run, SlotRoot, run
from tests.credential_shim.test_process import assert_refused, token_of

pytestmark = [pytest.mark.slow, pytest.mark.root]

BIND = f"mount --bind {{source}} {CREDENTIAL_INSIDE}"
COPY = f"cp -a {{source}}/. {CREDENTIAL_INSIDE}"
REASON = f"echo because of this >{CREDENTIAL_INSIDE}/NOT-SHARED"


@pytest.fixture
def shared(tmp_path: Path, entra: EntraServer) -> Path:
    """What a host shares: a configuration, and the secret that it names beside it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "client-secret").write_text(f"{SECRET}\n")
    (shared / "credential.toml").write_text(
        f"""
        login = "spn"
        client_id = "{CLIENT}"
        tenant_id = "{TENANT}"
        authority_host = "{entra.url}"
        ca_file = "{entra.authority}"
        client_secret_file = "client-secret"
        """
    )
    for file in shared.iterdir():
        file.chmod(0o600)
    return shared


@pytest.fixture
def cache(tmp_path: Path) -> tuple[str, str]:
    return ("--cache-dir", str(tmp_path / "cache"))


def in_machine(root: SlotRoot, setup: str, *words: str) -> Run:
    """Run the shim where /var/lib is the machine's own, as ``setup`` made it."""
    if Path(DEFAULT_CONFIG).exists():
        pytest.skip(f"{DEFAULT_CONFIG} exists here and comes first")
    make = f"mount -t tmpfs none /var/lib; mkdir -p {CREDENTIAL_INSIDE}; {setup}"
    script = f"set -e; {make}; exec {shlex.join([root.shim(), *words])}"
    return run(["unshare", "--mount", "/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})


def configuration(said: Run) -> str:
    assert said.code == 0, said.err
    lines = said.out.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("configuration: ")]
    return line.removeprefix("configuration: ")


def test_host_and_plugin_mean_the_same_place() -> None:
    assert f"{CREDENTIAL_INSIDE}/credential.toml" == SHARED_CONFIG


@pytest.mark.parametrize(("setup", "way"), [(BIND, "bound"), (COPY, "copied")])
def test_what_the_host_shares_is_used_with_the_secret_beside_it(
    root: SlotRoot,
    entra: EntraServer,
    shared: Path,
    cache: tuple[str, str],
    setup: str,
    way: str,
) -> None:
    setup = setup.format(source=shared)
    words = ("--server-id", SERVER_ID, *cache)
    result = in_machine(root, setup, "get-token", *words)
    assert token_of(result) == entra.issued(1)
    told = configuration(in_machine(root, setup, "explain", *words))
    assert told.startswith(f"{SHARED_CONFIG}, the host's, {way} (")


def test_what_others_in_the_machine_can_read_is_refused(
    root: SlotRoot, entra: EntraServer, shared: Path, cache: tuple[str, str]
) -> None:
    words = ("get-token", "--server-id", SERVER_ID, *cache)
    (shared / "client-secret").chmod(0o644)
    assert "0644" in assert_refused(in_machine(root, COPY.format(source=shared), *words), 2)
    (shared / "credential.toml").chmod(0o640)
    assert "0640" in assert_refused(in_machine(root, COPY.format(source=shared), *words), 2)
    assert entra.seen == ()


def test_a_machine_without_one_is_told_why_by_its_host(
    root: SlotRoot, cache: tuple[str, str]
) -> None:
    words = ("explain", "--server-id", SERVER_ID, *cache)
    assert configuration(in_machine(root, "true", *words)) == "none"
    told = configuration(in_machine(root, REASON, *words))
    assert told.endswith("not with this machine: because of this")


def test_a_file_of_the_machine_itself_that_is_named_wins(
    root: SlotRoot, entra: EntraServer, shared: Path, cache: tuple[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text('login = "msi"\n')
    own.chmod(0o600)
    words = ("explain", "--server-id", SERVER_ID, "--config", str(own), *cache)
    told = configuration(in_machine(root, BIND.format(source=shared), *words))
    assert told == f"{own}, own file (login)"
