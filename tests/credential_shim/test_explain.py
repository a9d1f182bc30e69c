"""explain, the configuration file of a whole run, and the search for secrets in every output."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.credential_shim.entra_server import CLIENT, TENANT, EntraServer, refused
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import SERVER_ID, Run, SlotRoot, seal_bytes
from tests.credential_shim.test_process import Flags, assert_refused, token_of

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path, entra: EntraServer, secret_file: Path) -> Path:
    """A configuration that is all a run needs."""
    file = tmp_path / "credential.toml"
    file.write_text(
        f"""
        login = "spn"
        server_id = "{SERVER_ID}"
        client_id = "{CLIENT}"
        tenant_id = "{TENANT}"
        authority_host = "{entra.url}"
        ca_file = "{entra.authority}"
        client_secret_file = "{secret_file}"
        """
    )
    file.chmod(0o600)
    return file


@pytest.fixture
def words(file: Path, tmp_path: Path) -> Flags:
    return ("--config", str(file), "--cache-dir", str(tmp_path / "cache"))


def explained(root: SlotRoot, *words: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    result = root.run("explain", *words, environ=environ)
    assert (result.code, result.err) == (0, "")
    pairs = [line.partition(": ")[::2] for line in result.out.decode().splitlines()]
    return dict(pairs)


def test_a_file_is_all_that_a_run_needs_and_a_flag_wins_over_it(
    root: SlotRoot, entra: EntraServer, words: Flags
) -> None:
    first = root.run("get-token", *words)
    assert token_of(first) == entra.issued(1)
    assert root.run("get-token", *words).out == first.out
    overridden = root.run("get-token", *words, "--client-id", "flag")
    note, line = overridden.err.splitlines()
    assert (overridden.code, overridden.out) == (5, b"")
    assert "client-id from the command line overrides the configuration file" in note
    assert "client flag" in line
    assert len(entra.seen) == 2


def test_a_secret_in_the_file_is_rotated_with_it(
    root: SlotRoot, entra: EntraServer, words: Flags, file: Path, tmp_path: Path
) -> None:
    text = "\n".join(each for each in file.read_text().splitlines() if "secret_file" not in each)
    for number, secret in enumerate(("one", "two"), 1):
        entra.secrets = {secret}
        file.write_text(f'{text}\nclient_secret = "{secret}"\n')
        result = root.run("get-token", *words)
        assert token_of(result) == entra.issued(number)
        assert result.err == ""
        assert root.run("get-token", *words).out == result.out


def test_a_file_that_others_can_read_is_refused_even_with_a_token_in_the_cache(
    root: SlotRoot, words: Flags, file: Path
) -> None:
    token_of(root.run("get-token", *words))
    file.chmod(0o644)
    assert "0644" in assert_refused(root.run("get-token", *words), 2)


def test_a_named_file_that_is_missing_is_an_error_and_the_usual_one_is_not(
    root: SlotRoot, flags: Flags
) -> None:
    missing = root.run("get-token", "--config", "/nonexistent", "--server-id", "s")
    assert "/nonexistent" in assert_refused(missing, 2)
    both = root.run("get-token", *flags, "--config", "/nonexistent")
    assert "contradict" in assert_refused(both, 2)


def test_explain_tells_who_where_and_why_and_asks_nobody(
    root: SlotRoot, entra: EntraServer, words: Flags, file: Path, secret_file: Path
) -> None:
    environ = {"AZURE_CLIENT_ID": "leaked", "HTTPS_PROXY": "http://u:canary@proxy:3128"}
    said = explained(root, *words, environ=environ)
    assert said["login"] == "spn (from the configuration file)"
    assert said["identity"].startswith(f"client_id {CLIENT} of tenant {TENANT}")
    assert said["asks"] == f"{entra.url}, directly"
    assert said["proof"] == f"secret file {secret_file}, readable"
    assert said["gate"] == "serve: seals agree"
    assert said["cache"].endswith("is not there yet")
    assert str(file) in said["configuration"]
    assert "AZURE_CLIENT_ID" in said["warning"]
    assert entra.seen == ()
    by_proxy = explained(
        root, *words, "--authority-host", "https://login.microsoftonline.us", environ=environ
    )
    assert by_proxy["asks"] == "https://login.microsoftonline.us, by proxy proxy:3128"


def test_explain_tells_the_state_of_cache_gate_and_proof(
    root: SlotRoot, entra: EntraServer, words: Flags, secret_file: Path
) -> None:
    token_of(root.run("get-token", *words))
    assert "a token until" in explained(root, *words)["cache"]
    secret_file.write_text("wrong")
    assert_refused(root.run("get-token", *words), 5)
    assert "AADSTS7000215" in explained(root, *words)["cache"]
    secret_file.chmod(0o644)
    assert "0644" in explained(root, *words)["proof"]
    root.want(seal_bytes("9.0.0"))
    gate = explained(root, *words)["gate"]
    assert gate.startswith("wait")
    assert "9.0.0" in gate


def test_explain_knows_managed_identities(root: SlotRoot, flags: Flags, imds: ImdsServer) -> None:
    said = explained(root, *flags)
    assert said["identity"] == "the system-assigned identity"
    assert said["asks"] == f"{imds.url}, directly"
    assert said["configuration"] == "none"
    assert explained(root, *flags, "--object-id", "o")["identity"] == "object_id o"


CANARY = "c4n4ry+s3cr3t"


def everything_said(results: list[Run], *trees: Path) -> bytes:
    """Every byte that runs wrote, to their outputs and beneath ``trees``, names included."""
    said = [part for each in results for part in (each.out, each.err.encode())]
    for tree in trees:
        for path in tree.rglob("*"):
            said += [os.fsencode(path), path.read_bytes() if path.is_file() else b""]
    return b"\n".join(said)


def test_no_secret_shows_up_in_any_output_file_or_name(
    root: SlotRoot,
    entra: EntraServer,
    client_flags: Flags,
    words: Flags,
    file: Path,
    tmp_path: Path,
) -> None:
    entra.then(*[refused(code) for code in (7000215, 90033, 50196, 1)])
    secret = tmp_path / "canary"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    by_file = (*client_flags, "--client-secret-file", str(secret))
    variables = {"AZURE_CLIENT_SECRET": CANARY, "HTTPS_PROXY": f"http://u:{CANARY}@127.0.0.1:9"}
    text = "\n".join(each for each in file.read_text().splitlines() if "secret_file" not in each)
    file.write_text(f'{text}\nclient_secret = "{CANARY}"\n')
    results = [
        root.run(command, *inputs, environ=environ)
        for command in ("get-token", "check", "explain")
        for inputs, environ in (
            (by_file, {}),
            (client_flags, variables),
            (words, {}),
            ((*client_flags, f"--client-secret={CANARY}"), {}),
            ((*client_flags, "--tenant-id", CANARY, "--client-secret-file", str(secret)), {}),
            ((*by_file, "--authority-host", "https://far.invalid"), variables),
        )
    ]
    results.append(root.run("exec", "--", "/bin/true", environ=variables))
    assert all(each.code for each in results if b"login" not in each.out)
    said = everything_said(results, tmp_path / "cache")
    assert CANARY.encode() not in said
    assert b"c4n4ry%2Bs3cr3t" not in said
    assert b"Something about" not in said


def test_no_secret_is_in_the_process_while_it_waits(
    root: SlotRoot, entra: EntraServer, client_flags: Flags, tmp_path: Path
) -> None:
    """Neither argv nor the environment of a running shim holds what came from a file."""
    secret = tmp_path / "canary"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    entra.then(entra.hold)
    words = [root.shim(), "get-token", *client_flags, "--client-secret-file", str(secret)]
    child = subprocess.Popen(words, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not entra.seen and child.poll() is None:
        time.sleep(0.01)
    seen = [Path(f"/proc/{child.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    child.kill()
    child.communicate()
    assert entra.seen
    assert not [part for part in seen if CANARY.encode() in part]
