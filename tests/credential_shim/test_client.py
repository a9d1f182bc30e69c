"""A client of Entra as a process: what is sent, cached, refused, and never shown."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.credential_shim.entra_server import (
    CLIENT,
    SECRET,
    TENANT,
    TRACE,
    EntraServer,
    refused,
)
from tests.credential_shim.imds_server import page, raw
from tests.credential_shim.slot_root import SERVER_ID, SlotRoot, run
from tests.credential_shim.test_process import Flags, assert_refused, token_of

pytestmark = pytest.mark.slow


@pytest.fixture
def flags(client_flags: Flags, secret_file: Path) -> Flags:
    return (*client_flags, "--client-secret-file", str(secret_file))


def test_a_secret_costs_one_post_and_later_runs_none(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    first = root.run("get-token", *flags)
    assert token_of(first) == entra.issued(1)
    assert first.err == ""
    assert root.run("get-token", *flags).out == first.out
    assert [seen.path for seen in entra.seen] == [f"/{TENANT}/oauth2/v2.0/token"]
    assert entra.seen[0].headers["content-type"] == "application/x-www-form-urlencoded"


def test_the_stanza_of_existing_nodes_works_and_its_secret_is_warned_about(
    root: SlotRoot, entra: EntraServer, tmp_path: Path
) -> None:
    environ = {
        "AAD_LOGIN_METHOD": "spn",
        "AAD_SERVICE_PRINCIPAL_CLIENT_ID": CLIENT,
        "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET": SECRET,
        "AZURE_TENANT_ID": TENANT,
        "SSL_CERT_FILE": str(entra.authority),
    }
    where = ("--authority-host", entra.url, "--cache-dir", str(tmp_path / "cache"), "--no-config")
    words = ("token", "kubelogin", "--server-id", SERVER_ID, *where)
    result = root.run(*words, environ=environ)
    assert token_of(result) == entra.issued(1)
    assert "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET" in result.err
    assert SECRET not in result.err
    again = root.run(*words, environ=environ)
    assert (again.out, again.err) == (result.out, "")
    entra.secrets = {"rotated"}
    rotated = {**environ, "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET": "rotated"}
    assert token_of(root.run(*words, environ=rotated)) == entra.issued(2)


def test_a_secret_can_come_by_descriptor_through_a_handover(
    root: SlotRoot, entra: EntraServer, client_flags: Flags, secret_file: Path
) -> None:
    """The shim of the other slot hands over before it reads what can be read but once."""
    root.install("green")
    (root.path / "green" / "RELEASE").write_text(
        (root.path / "blue" / "RELEASE").read_text().replace("1.0.0", "1.1.0")
    )
    script = f'cat {secret_file} | "$0" "$@" 0<&0 5<&0; exit $?'
    words = ["get-token", *client_flags, "--client-secret-fd", "5"]
    result = run(["/bin/sh", "-c", script, root.shim("green"), *words])
    assert token_of(result) == entra.issued(1)


def test_a_rotated_secret_reaches_the_next_run_at_once(
    root: SlotRoot, entra: EntraServer, flags: Flags, secret_file: Path
) -> None:
    """Neither the old secret's token nor its remembered refusal outlives it."""
    token_of(root.run("get-token", *flags))
    secret_file.write_text("wrong")
    line = assert_refused(root.run("get-token", *flags), 5)
    assert f"AADSTS7000215 (trace id {TRACE})" in line
    assert str(secret_file) in line
    assert "asked again in" in assert_refused(root.run("get-token", *flags), 5)
    assert len(entra.seen) == 2
    secret_file.write_text(SECRET)
    assert token_of(root.run("get-token", *flags)) == entra.issued(3)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_can_read_is_refused_naming_the_mode(
    root: SlotRoot, entra: EntraServer, flags: Flags, secret_file: Path, mode: int
) -> None:
    token_of(root.run("get-token", *flags))
    secret_file.chmod(mode)
    line = assert_refused(root.run("get-token", *flags), 2)
    assert f"{mode:04o}" in line
    assert "chmod 600" in line
    assert len(entra.seen) == 1


def test_clients_and_tenants_do_not_share_credentials(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    token_of(root.run("get-token", *flags))
    other = [word.replace(CLIENT, CLIENT[::-1]) for word in flags]
    assert "700016" in assert_refused(root.run("get-token", *other), 5)
    other = [word.replace(TENANT, TENANT[::-1]) for word in flags]
    assert "90002" in assert_refused(root.run("get-token", *other), 5)
    other = [word.replace(SERVER_ID, "other") for word in flags]
    assert "500011" in assert_refused(root.run("get-token", *other), 5)


def test_many_processes_at_once_cost_one_request(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    entra.script.delay = 0.3
    with ThreadPoolExecutor(12) as pool:
        runs = list(pool.map(lambda _: root.run("get-token", *flags), range(12)))
    assert {token_of(result) for result in runs} == {entra.issued(1)}
    assert len(entra.seen) == 1


def test_a_flood_is_not_asked_about_again_in_another_process(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    entra.then(refused(50196, "invalid_grant"))
    assert "AADSTS50196" in assert_refused(root.run("get-token", *flags), 6)
    line = assert_refused(root.run("get-token", *flags), 6)
    assert "asked again in" in line
    assert len(entra.seen) == 1


def test_an_outage_serves_the_token_that_still_works(
    root: SlotRoot, entra: EntraServer, flags: Flags, tmp_path: Path
) -> None:
    token = token_of(root.run("get-token", *flags))
    aside = (".lock", ".seen")
    files = (tmp_path / "cache").iterdir()
    (entry,) = (path for path in files if not path.name.endswith(aside))
    header, _, rest = entry.read_bytes().partition(b"\n")
    _, fetched, *others = header.split(b" ")
    entry.write_bytes(b" ".join([fetched, fetched, *others]) + b"\n" + rest)
    entra.then(page(502), page(502), page(502))
    result = root.run("get-token", *flags)
    assert token_of(result) == token
    assert "serving the cached credential" in result.err


@pytest.mark.parametrize(
    ("answer", "code", "cause"),
    [
        (page(200), 7, "not Entra"),
        (page(403), 7, "not Entra"),
        (raw(b"SSH-2.0-OpenSSH\r\n"), 7, "not HTTP"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"), 7, "exceeds"),
        (refused(530032, "access_denied"), 5, "AADSTS530032"),
    ],
)
def test_each_cause_has_its_exit_code_and_line(
    root: SlotRoot, entra: EntraServer, flags: Flags, answer: object, code: int, cause: str
) -> None:
    assert callable(answer)
    entra.then(answer)
    line = assert_refused(root.run("get-token", *flags), code)
    assert cause in line
    assert "hunter" not in line


def test_an_authority_that_never_answers_ends_within_eight_seconds(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    entra.then(entra.hold, entra.hold, entra.hold)
    assert "timed out" in assert_refused(root.run("get-token", *flags), 4)


def test_an_untrusted_authority_gets_no_secret(
    root: SlotRoot, entra: EntraServer, flags: Flags, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with EntraServer(other) as impostor:
        words = [word.replace(entra.url, impostor.url) for word in flags]
        line = assert_refused(root.run("get-token", *words), 4)
        assert "not trusted" in line
        assert impostor.seen == ()


def test_a_federated_token_is_an_assertion_and_its_renewal_costs_nothing(
    root: SlotRoot, entra: EntraServer, client_flags: Flags, tmp_path: Path
) -> None:
    file = tmp_path / "federated"
    file.write_text(f"{entra.federated}\n")
    words = ["--federated-token-file", str(file), *client_flags]
    words[words.index("spn")] = "workloadidentity"
    assert token_of(root.run("get-token", *words)) == entra.issued(1)
    file.write_text("renewed.jwt.token")
    assert token_of(root.run("get-token", *words)) == entra.issued(1)


def test_a_leaked_authority_variable_sends_no_secret_elsewhere(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    words = [word for word in flags if word not in ("--authority-host", entra.url)]
    environ = {"AZURE_AUTHORITY_HOST": entra.url}
    result = root.run("get-token", *words, environ=environ)
    assert "AZURE_AUTHORITY_HOST" in assert_refused(result, 2)
    assert entra.seen == ()


def test_check_asks_past_the_cache_and_shows_neither_secret_nor_token(
    root: SlotRoot, entra: EntraServer, flags: Flags
) -> None:
    token = token_of(root.run("get-token", *flags))
    result = root.run("check", *flags)
    assert result.code == 0
    assert result.out.startswith(b"ok login=spn identity=client_id=" + CLIENT.encode())
    assert token.encode() not in result.out
    assert len(entra.seen) == 2
    assert os.fsencode(SECRET) not in result.out
