"""The shim as a process: what a caller gets on stdout, on stderr, and as exit code."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from credential_shim._version import PROTOCOL, VERSION
from credential_shim.gate import POLL_SECONDS, WAIT_SECONDS
from credential_shim.serving import HARD_SECONDS
from tests.credential_shim.imds_server import ImdsServer, chunked, page, refuse
from tests.credential_shim.slot_root import HUNG_SECONDS, PYTHON, Run, SlotRoot, run, seal_bytes

Flags = tuple[str, ...]


def token_of(result: Run) -> str:
    """The token in a successful run's output."""
    assert result.code == 0, result.err
    value = json.loads(result.out)
    assert value["kind"] == "ExecCredential"
    token = value["status"]["token"]
    assert isinstance(token, str)
    return token


def assert_refused(result: Run, code: int) -> str:
    """A refusal: this exit code, nothing on stdout, one line on stderr, which is returned."""
    assert (result.code, result.out) == (code, b""), result.err
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("hostsync-credential: ")
    return result.err


def assert_gave_up(line: str) -> None:
    """The shim ended by a deadline of its own, all of which lie within its hard stop.

    Which one is told depends on the machine: a starved process reaches the hard stop first.
    """
    assert HARD_SECONDS == 8
    assert "timed out" in line or f"within {HARD_SECONDS:.0f} seconds" in line


def exec_info(version: str) -> dict[str, str]:
    value = {"kind": "ExecCredential", "apiVersion": version, "spec": {"interactive": False}}
    return {"KUBERNETES_EXEC_INFO": json.dumps(value, separators=(",", ":"))}


@pytest.mark.slow
def test_without_any_environment_one_credential_and_nothing_else_is_written(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    result = root.run("get-token", *flags)
    assert token_of(result) == imds.issued(1)
    assert result.err == ""
    status = json.loads(result.out)["status"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["expirationTimestamp"])
    assert not result.out.endswith(b"\n")


@pytest.mark.slow
def test_later_processes_get_the_same_bytes_from_the_cache(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    first = root.run("get-token", *flags)
    assert root.run("token", "kubelogin", *flags).out == first.out
    assert root.run("get-token", *flags, environ={"AAD_LOGIN_METHOD": "msi"}).out == first.out
    assert len(imds.seen) == 1


@pytest.mark.slow
def test_an_ageing_entry_is_renewed_and_not_served_from_the_fast_path(
    root: SlotRoot, imds: ImdsServer, flags: Flags, tmp_path: Path
) -> None:
    root.run("get-token", *flags)
    aside = (".seen", ".lock", ".fail")
    files = (tmp_path / "cache").iterdir()
    (entry,) = (path for path in files if not path.name.endswith(aside))
    header, _, rest = entry.read_bytes().partition(b"\n")
    _, fetched, *others = header.split(b" ")
    # Due for renewal at the very moment it was fetched.
    entry.write_bytes(b" ".join([fetched, fetched, *others]) + b"\n" + rest)
    assert token_of(root.run("get-token", *flags)) == imds.issued(2)


@pytest.mark.slow
def test_the_request_names_the_release_that_asks(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    root.run("get-token", *flags)
    assert imds.seen[0].headers["user-agent"] == f"hostsync-credential/{VERSION}"
    assert imds.seen[0].headers["metadata"] == "true"


@pytest.mark.slow
def test_identities_do_not_share_credentials(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.script.identities.update(a="a", b="b")
    runs = [
        root.run("get-token", *flags),
        root.run("get-token", *flags, "--client-id", "a"),
        root.run("get-token", *flags, environ={"AZURE_CLIENT_ID": "b"}),
    ]
    assert len({token_of(result) for result in runs}) == 3
    assert [seen.query.get("client_id") for seen in imds.seen] == [None, "a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_requested_version_is_echoed_fresh_and_cached(
    root: SlotRoot, flags: Flags, version: str
) -> None:
    wanted = f"client.authentication.k8s.io/{version}"
    for _ in range(2):
        result = root.run("get-token", *flags, environ=exec_info(wanted))
        assert json.loads(result.out)["apiVersion"] == wanted


@pytest.mark.slow
def test_an_unknown_version_is_refused(root: SlotRoot, flags: Flags, imds: ImdsServer) -> None:
    environ = exec_info("client.authentication.k8s.io/v1alpha1")
    assert "apiVersion" in assert_refused(root.run("get-token", *flags, environ=environ), 2)
    assert imds.seen == ()


@pytest.mark.slow
def test_a_caller_that_comes_back_gets_a_fresh_credential(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    assert token_of(root.run_again("get-token", *flags)) == imds.issued(1)
    assert token_of(root.run_again("get-token", *flags)) == imds.issued(2)
    assert token_of(root.run_again("get-token", *flags)) == imds.issued(2)


@pytest.mark.slow
def test_twenty_processes_at_once_cost_one_request(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.script.delay = 0.3
    with ThreadPoolExecutor(20) as pool:
        runs = list(pool.map(lambda _: root.run("get-token", *flags), range(20)))
    assert {token_of(result) for result in runs} == {imds.issued(1)}
    assert len(imds.seen) == 1


@pytest.mark.slow
def test_a_storm_of_failures_costs_one_request(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.then(*[refuse(429, Retry_After="120")] * 20)
    with ThreadPoolExecutor(10) as pool:
        runs = list(pool.map(lambda _: root.run("get-token", *flags), range(10)))
    for result in runs:
        assert "throttles" in assert_refused(result, 6)
    assert len(imds.seen) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "cause"),
    [
        (refuse(401, "unauthorized"), 5, "denied"),
        (refuse(410), 6, "being updated"),
        (page(200), 7, "not an identity endpoint"),
        (page(403), 7, "not an identity endpoint"),
    ],
)
def test_each_cause_has_its_exit_code_and_line(
    root: SlotRoot, imds: ImdsServer, flags: Flags, answer: object, code: int, cause: str
) -> None:
    assert callable(answer)
    imds.then(answer)
    assert cause in assert_refused(root.run("get-token", *flags), code)


@pytest.mark.slow
def test_a_chunked_answer_is_a_credential(root: SlotRoot, imds: ImdsServer, flags: Flags) -> None:
    imds.then(chunked)
    assert token_of(root.run("get-token", *flags)) == imds.issued(1)


@pytest.mark.slow
def test_proxy_and_python_variables_of_the_caller_change_nothing(
    root: SlotRoot, imds: ImdsServer, flags: Flags, tmp_path: Path
) -> None:
    (tmp_path / "os.py").write_text("raise SystemExit('captured')")
    environ = {
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": "/nonexistent",
        "PYTHONSTARTUP": str(tmp_path / "os.py"),
        "PYTHONINSPECT": "1",
        "LC_ALL": "no_SUCH",
    }
    result = root.run("get-token", *flags, environ=environ)
    assert token_of(result) == imds.issued(1)


@pytest.mark.slow
def test_conflicting_variables_lose_and_are_said_once(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.script.identities["flag"] = "flag"
    environ = {"AZURE_CLIENT_ID": "leaked"}
    words = ("get-token", *flags, "--client-id", "flag")
    first = root.run(*words, environ=environ)
    assert "AZURE_CLIENT_ID" in first.err
    assert imds.seen[0].query["client_id"] == "flag"
    assert root.run(*words, environ=environ).err == ""


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_cost_no_credential(
    root: SlotRoot, imds: ImdsServer, flags: Flags, closed: str
) -> None:
    command = f'"$0" "$@" {closed}; exit $?'
    assert run(["/bin/sh", "-c", command, root.shim(), "get-token", *flags]).code == 0
    assert token_of(root.run("get-token", *flags)) == imds.issued(1)


def in_release(root: SlotRoot, code: str) -> list[str]:
    """A command that runs ``code`` with the modules of blue."""
    package = root.path / "blue" / "lib" / "hostsync"
    start = f"import os, sys; sys.path.insert(0, {str(package)!r})\n"
    return [PYTHON, "-I", "-S", "-c", start + code]


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_closed_standard_descriptors_do_not_become_files(
    root: SlotRoot, tmp_path: Path, closed: str
) -> None:
    file = tmp_path / "opened-next"
    code = (
        "from credential_shim import stdio\n"
        "stdio.fill_closed()\n"
        f"os.open({str(file)!r}, os.O_RDWR | os.O_CREAT)\n"
        "stdio.write_out(b'token')\n"
        "stdio.say('message')\n"
    )
    shell = ["/bin/sh", "-c", f'"$0" "$@" {closed}; exit $?']
    assert run([*shell, *in_release(root, code)]).code == 0
    assert file.read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_a_reader_that_went_away_is_no_crash(root: SlotRoot, flags: Flags, cached: bool) -> None:
    if cached:
        root.run("get-token", *flags)
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.Popen(
        [root.shim(), "get-token", *flags], stdout=writer, stderr=subprocess.PIPE, env={}
    )
    os.close(writer)
    _, err = child.communicate(timeout=HUNG_SECONDS)
    assert err == b""


@pytest.fixture
def deaf_endpoint() -> Iterator[str]:
    """An endpoint that accepts connections in its backlog and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_a_dead_endpoint_ends_within_eight_seconds(
    root: SlotRoot, deaf_endpoint: str, tmp_path: Path
) -> None:
    where = ("--identity-endpoint", deaf_endpoint, "--cache-dir", str(tmp_path / "cache"))
    result = root.run("get-token", "--server-id", "s", *where)
    assert_gave_up(assert_refused(result, 4))


@pytest.mark.slow
def test_version_needs_no_seal(root: SlotRoot) -> None:
    (root.path / "blue" / "RELEASE").unlink()
    result = root.run("version")
    assert result.code == 0
    assert result.out == f"hostsync-credential {VERSION} (protocol {PROTOCOL})\n".encode()


@pytest.mark.slow
def test_help_names_every_exit_code_and_command(root: SlotRoot) -> None:
    result = root.run("get-token", "--help")
    assert result.code == 0
    text = result.out.decode()
    for word in ("check", "version", "--on-skew", "AAD_LOGIN_METHOD", "kubelogin"):
        assert word in text
    for code in range(9):
        if code != 1:
            assert f"  {code} " in text


@pytest.mark.slow
def test_usage_errors_are_exit_two(root: SlotRoot) -> None:
    assert_refused(root.run(), 2)
    assert_refused(root.run("get-token"), 2)
    line = assert_refused(root.run("get-token", "--server-id", "s", "-l", "ropc"), 2)
    assert "'ropc'" in line


@pytest.mark.slow
def test_check_fetches_past_the_cache_and_shows_no_token(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    token = token_of(root.run("get-token", *flags))
    result = root.run("check", *flags)
    assert result.code == 0
    assert re.fullmatch(rb"ok login=msi identity=system [^\n]+\n", result.out)
    assert b"token." not in result.out
    assert len(imds.seen) == 2
    assert token_of(root.run("get-token", *flags)) == token


@pytest.mark.slow
def test_check_can_test_a_release_that_is_not_selected(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    root.install("green", seal_bytes("2.0.0"))
    assert "2.0.0" in assert_refused(root.run("check", *flags, slot="green"), 3)
    (root.path / "green" / "RELEASE").unlink()
    assert_refused(root.run("check", *flags, slot="green"), 3)
    assert imds.seen == ()
    assert root.run("check", "--no-gate", *flags, slot="green").code == 0
    imds.then(page(200))
    assert_refused(root.run("check", "--no-gate", *flags, slot="green"), 7)


@pytest.mark.slow
def test_a_shim_of_the_other_slot_hands_over_to_the_selected_one(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    green = root.install("green", seal_bytes("1.1.0"))
    (green / "lib/hostsync/credential_shim/_version.py").write_text(
        'VERSION = "1.1.0"\nPROTOCOL = 1\n'
    )
    root.point("green", age=0)
    assert token_of(root.run("get-token", *flags, slot="blue")) == imds.issued(1)
    assert imds.seen[0].headers["user-agent"] == "hostsync-credential/1.1.0"


@pytest.mark.slow
def test_a_mirror_behind_its_host_refuses_naming_both_versions(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    root.want(seal_bytes("1.1.0"))
    start = time.monotonic()
    line = assert_refused(root.run("get-token", *flags), 3)
    assert time.monotonic() - start > WAIT_SECONDS - POLL_SECONDS
    assert "1.0.0" in line
    assert "1.1.0" in line
    assert "hostsync sync" in line
    assert imds.seen == ()


@pytest.mark.slow
def test_a_cached_credential_does_not_pass_a_closed_gate(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    token = token_of(root.run("get-token", *flags))
    root.want(seal_bytes("1.1.0"))
    served = root.run("get-token", *flags, "--on-skew", "serve")
    assert token_of(served) == token
    assert "--on-skew=serve" in served.err
    assert_refused(root.run("get-token", *flags), 3)


@pytest.mark.slow
def test_an_upgrade_in_flight_costs_no_token(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    root.want(seal_bytes("1.1.0"), age=5)
    result = root.run("get-token", *flags)
    assert token_of(result) == imds.issued(1)
    assert "1.1.0" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["1.000", "99999999.000"])
def test_the_mark_of_a_handover_set_by_hand_only_prevents_a_handover(
    root: SlotRoot, flags: Flags, imds: ImdsServer, mark: str
) -> None:
    root.install("green", seal_bytes("1.1.0"))
    root.point("green")
    environ = {"HOSTSYNC_CREDENTIAL_REEXEC": mark}
    assert_refused(root.run("get-token", *flags, slot="blue", environ=environ), 3)
    assert imds.seen == ()


@pytest.mark.slow
def test_two_releases_that_point_at_each_other_do_not_loop(
    root: SlotRoot, flags: Flags, imds: ImdsServer
) -> None:
    """A launcher behind current that runs the other slot's code would exec for ever."""
    green = root.install("green", seal_bytes("1.1.0"))
    launcher = green / "bin" / "hostsync-credential"
    launcher.unlink()
    launcher.write_text(f'#!/bin/sh\nexec {root.shim("blue")} "$@"\n')
    launcher.chmod(0o755)
    root.point("green")
    assert_refused(root.run("get-token", *flags), 3)
    assert imds.seen == ()


FILL_STDERR = """
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x")
except BlockingIOError:
    os.set_blocking(2, True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "said"), [("", b"hostsync-credential: stuck\n"), (FILL_STDERR, b"")]
)
def test_the_hard_stop_ends_a_process_whose_outputs_nobody_reads(
    root: SlotRoot, before: str, said: bytes
) -> None:
    code = (
        "from credential_shim import guard, stdio\n"
        f"{before}\n"
        "guard.arm(0.2, 'stuck')\n"
        "stdio.write_out(b'x' * 10_000_000)\n"
    )
    child = subprocess.Popen(in_release(root, code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout, child.stderr:
        assert child.wait(timeout=HUNG_SECONDS) == 4
        assert child.stderr.read().lstrip(b"x") == said
