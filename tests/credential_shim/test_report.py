"""A line about each run, for syslog or the journal: complete, without secrets, never waited for."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from credential_shim import imds
from credential_shim.arguments import parse
from credential_shim.errors import UsageError
from credential_shim.identity import Endpoint, Identity
from credential_shim.report import JOURNAL, SYSLOG, endpoint_of, send
from tests.credential_shim.entra_server import TENANT, EntraServer, refused
from tests.credential_shim.imds_server import ImdsServer, refuse
from tests.credential_shim.slot_root import Run, SlotRoot, run
from tests.credential_shim.test_explain import CANARY
from tests.credential_shim.test_process import Flags, token_of

FIELDS = {"command": "get-token", "exit": "0", "cause": 'it "failed"\nhere'}


class Listener:
    """A socket such as a logger has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """Every datagram so far."""
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(65536).decode())
        return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path / "log")
    yield listener
    listener.socket.close()


def test_syslog_gets_one_line_with_identifier_and_severity(listener: Listener) -> None:
    send(SYSLOG, FIELDS, {SYSLOG: str(listener.path)})
    send(SYSLOG, {**FIELDS, "exit": "5"}, {SYSLOG: str(listener.path)})
    good, bad = listener.heard()
    assert good.startswith("<30>hostsync-credential[")
    assert good.endswith(']: command=get-token exit=0 cause="it \\"failed\\"?here"')
    assert bad.startswith("<27>")


def test_the_journal_gets_fields_and_no_value_can_add_one(listener: Listener) -> None:
    hostile = {**FIELDS, "cause": "x\nPRIORITY=0\x00y"}
    send(JOURNAL, hostile, {JOURNAL: str(listener.path)})
    (entry,) = listener.heard()
    assert entry.splitlines() == [
        "MESSAGE=command=get-token exit=0 cause=x?PRIORITY=0?y",
        "PRIORITY=6",
        "SYSLOG_IDENTIFIER=hostsync-credential",
        "HOSTSYNC_COMMAND=get-token",
        "HOSTSYNC_EXIT=0",
        "HOSTSYNC_CAUSE=x?PRIORITY=0?y",
    ]


@pytest.mark.parametrize("log", [SYSLOG, JOURNAL])
@pytest.mark.parametrize("trouble", ["absent", "dead", "a file", "full", "too long"])
def test_a_logger_in_trouble_neither_delays_nor_fails(
    listener: Listener, log: str, trouble: str
) -> None:
    """A sender that waited for a full queue would never return here."""
    fields = dict(FIELDS)
    match trouble:
        case "absent":
            listener.path.unlink()
        case "dead":
            listener.socket.close()
        case "a file":
            listener.path.unlink()
            listener.path.touch()
        case "full":
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler,
                suppress(BlockingIOError),
            ):
                filler.setblocking(False)
                while True:
                    filler.sendto(b"x" * 1000, str(listener.path))
        case "too long":
            fields["cause"] = "x" * 1_000_000
    send(log, fields, {log: str(listener.path)})


def test_the_endpoint_is_told_with_scheme_host_and_path() -> None:
    assert endpoint_of(Identity(login="msi", server_id="s")) == (
        f"http://169.254.169.254:80{imds.PATH}"
    )
    local = Identity(login="arc", server_id="s", endpoint=Endpoint("::1", 40342))
    assert endpoint_of(local) == f"http://[::1]:40342{imds.PATH}"
    words = ["--server-id", "s", "-l", "spn", "--client-id", "c", "-t", "t.example"]
    client = parse("get-token", [*words, "--client-secret-file", "/s"], {}).identity
    assert endpoint_of(client) == "https://login.microsoftonline.com/t.example/oauth2/v2.0/token"


def test_the_log_is_chosen_by_flag_then_variable_and_off_by_default() -> None:
    words = ["--server-id", "s", "--no-config"]
    variable = {"HOSTSYNC_CREDENTIAL_LOG": "syslog"}
    assert parse("get-token", words, {}).log == "none"
    assert parse("get-token", words, variable).log == "syslog"
    assert parse("get-token", [*words, "--log", "journal"], variable).log == "journal"
    with pytest.raises(UsageError, match="--log must be one of none, syslog, journal"):
        parse("get-token", [*words, "--log", "file"], {})


def logged(root: SlotRoot, listener: Listener, *words: str, **environ: str) -> tuple[Run, str]:
    """Run the shim where the journal's socket is the listener's; what it logged, in one entry."""
    place = Path("/run/systemd/journal")
    make = f"mount -t tmpfs none /run; mkdir -p {place}; ln -s {listener.path} {place}/socket"
    script = f"set -e; {make}; {shlex.join([root.shim(), *words])}; exit $?"
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environ}
    done = run(["unshare", "--mount", "/bin/sh", "-c", script], variables)
    heard = listener.heard()
    assert len(heard) <= 1
    return done, "".join(heard)


@pytest.mark.slow
@pytest.mark.root
def test_each_run_says_what_it_did_and_nothing_where_it_was_not_asked(
    root: SlotRoot, listener: Listener, imds: ImdsServer, flags: Flags
) -> None:
    words = ("get-token", *flags, "--log", "journal")
    first, missed = logged(root, listener, *words)
    assert token_of(first) == imds.issued(1)
    assert " cache=miss duration_ms=" in missed
    assert f" endpoint={imds.url}/metadata/identity/oauth2/token exit=0\n" in missed
    cached, hit = logged(root, listener, *words)
    assert cached == first
    assert "MESSAGE=command=get-token source=msi cache=hit " in hit
    assert logged(root, listener, "get-token", *flags)[1] == ""
    imds.then(refuse(429, Retry_After="120"))
    refusal, throttled = logged(root, listener, *words, "--object-id", "o")
    assert (refusal.code, refusal.out) == (6, b"")
    assert "HOSTSYNC_CAUSE=" in throttled
    assert refusal.err.removeprefix("hostsync-credential: ").strip() in throttled
    _, again = logged(root, listener, *words, "--object-id", "o")
    assert "cache=failure" in again


@pytest.mark.slow
@pytest.mark.root
def test_a_token_is_served_without_any_logger(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    for log in (SYSLOG, JOURNAL):
        environ = {"HOSTSYNC_CREDENTIAL_LOG": log}
        shim = shlex.join([root.shim(), "get-token", *flags])
        script = f"mount -t tmpfs none /run; {shim}; exit $?"
        words = ["unshare", "--mount", "/bin/sh", "-c", script]
        result = run(words, {"PATH": "/usr/bin:/bin", **environ})
        assert token_of(result) == imds.issued(1)
        assert result.err == ""


@pytest.mark.slow
@pytest.mark.root
def test_no_secret_and_no_token_is_in_any_line(
    root: SlotRoot, listener: Listener, entra: EntraServer, client_flags: Flags, tmp_path: Path
) -> None:
    secret = tmp_path / "canary"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    by_file = (*client_flags, "--client-secret-file", str(secret))
    by_variable = {"AZURE_CLIENT_SECRET": CANARY, "HTTPS_PROXY": f"http://u:{CANARY}@127.0.0.1:9"}
    entries = []
    for command in ("get-token", "check"):
        entra.then(refused(7000215), refused(50196))
        for _ in range(2):
            entries.append(logged(root, listener, command, *by_file, "--log=journal")[1])
        entries.append(
            logged(root, listener, command, *client_flags, "--log=journal", **by_variable)[1]
        )
        entra.secrets = {CANARY}
        entries.append(
            logged(root, listener, command, *by_file, "--tenant-id", TENANT, "--log=journal")[1]
        )
    assert all(entries)
    said = "".join(entries)
    assert CANARY not in said
    assert "c4n4ry%2Bs3cr3t" not in said
    assert not [n for n in range(9) if entra.issued(n) in said]
