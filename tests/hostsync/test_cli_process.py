"""The command as a process: signals, lost output and odd text end well and leave nothing."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostsync.state import Outcome
from tests.hostsync.command import LONG, CommandLine, command_line
from tests.hostsync.world import snapshot

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line.installed()


def hanging(host: CommandLine) -> tuple[Path, Path]:
    """A candidate that says when it is asked for its version, and then hangs."""
    fifo = host.top / "fifo"
    os.mkfifo(fifo)
    return host.program("1.1.0", f"#!/bin/sh\necho $$ >{fifo}\nexec sleep 600\n"), fifo


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("preflight", [False, True])
def test_a_signal_during_verification_undoes_everything(
    host: CommandLine, number: signal.Signals, *, preflight: bool
) -> None:
    candidate, fifo = hanging(host)
    before = snapshot(host.top / "lib")
    words = ("upgrade", str(candidate), *(("--preflight",) if preflight else ()))
    with host.started(*words) as process:
        pid = int(fifo.read_text())
        process.send_signal(number)
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("hostsync: interrupted")
    assert snapshot(host.top / "lib") == before
    assert host.record.load() is None
    assert not Path(f"/proc/{pid}").exists()
    ended = [line.outcome for line in host.state.history()]
    assert ended == ([] if preflight else [Outcome.INTERRUPTED])


def test_a_killed_order_is_undone_by_the_next_verb(host: CommandLine) -> None:
    candidate, fifo = hanging(host)
    before = snapshot(host.top / "lib")
    with host.started("upgrade", str(candidate)) as process:
        pid = int(fifo.read_text())
        process.kill()
        process.wait()
    os.kill(pid, signal.SIGKILL)
    assert snapshot(host.top / "lib") != before
    assert host.run("recover").status == 0
    assert snapshot(host.top / "lib") == before
    assert [line.outcome for line in host.state.history()] == [Outcome.INTERRUPTED]


def test_an_order_whose_output_nobody_reads_goes_on(host: CommandLine) -> None:
    host.decide(Outcome.COMPLETE)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with host.started("upgrade", str(host.program("1.1.0")), stdout=writing) as process:
            _, err = process.communicate(timeout=LONG)
    finally:
        os.close(writing)
    assert (process.returncode, err) == (0, "")
    assert (host.top / "lib/aks-flex-node-current").readlink().name == "aks-flex-node-green"


def test_an_order_whose_output_finds_a_full_disk_goes_on(host: CommandLine) -> None:
    host.decide(Outcome.COMPLETE)
    candidate = str(host.program("1.1.0"))
    with (
        open("/dev/full", "w") as full,
        host.started("upgrade", candidate, stdout=full.fileno()) as process,
    ):
        _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (0, "")


def test_a_path_that_is_no_text_is_refused_in_one_line(host: CommandLine) -> None:
    ran = host.run("upgrade", os.fsencode(host.top) + b"/\xff\n")
    assert ran.status in (1, 3)
    assert len(ran.err.splitlines()) == 1
    assert r"\udcff\n" in ran.err


def test_a_candidate_cannot_act_on_the_terminal_of_the_operator(host: CommandLine) -> None:
    loud = host.program("1.1.0", "#!/bin/sh\nprintf '\\033]0;owned\\007bad\\n' >&2\nexit 3\n")
    ran = host.run("upgrade", str(loud))
    assert ran.status == 3
    assert r"\x1b]0;owned\x07bad" in ran.err
    assert "\x1b" not in ran.err + ran.out


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_any_locale_will_do(host: CommandLine, locale: str) -> None:
    host.environment = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = host.run(
        "upgrade",
        "/gr\N{LATIN SMALL LETTER O WITH DIAERESIS}\udcff\N{EURO SIGN}".encode(
            errors="surrogateescape"
        ),
    )
    assert ran.status in (1, 3)
    assert len(ran.err.splitlines()) == 1


def test_a_secret_of_the_caller_reaches_no_candidate_and_no_file(host: CommandLine) -> None:
    host.environment = {
        "AZURE_CLIENT_SECRET": "canary-7f3a",
        "HTTPS_PROXY": "http://u:canary-7f3a@p",
    }
    telling = host.program("1.1.0", "#!/bin/sh\nenv | sort | tr '\\n' ' ' >&2\nexit 3\n")
    ran = host.run("upgrade", str(telling))
    assert ran.status == 3
    assert "LANG=C" in ran.err
    found = subprocess.run(
        ["grep", "-r", "canary-7f3a", host.top / "state", host.top / "lib", host.top / "run"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert found.stdout == b""
    assert "canary-7f3a" not in ran.err + ran.out


@pytest.fixture
def notify(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd hears of a service."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(LONG)
        heard.bind(str(tmp_path / "notify"))
        yield heard


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_reports_ready_feeds_the_watchdog_and_ends_with_success(
    host: CommandLine, notify: socket.socket, number: signal.Signals
) -> None:
    host.environment = {"NOTIFY_SOCKET": notify.getsockname(), "WATCHDOG_USEC": "150000"}
    with host.started("daemon") as process:
        assert notify.recv(4096).startswith(b"READY=1\n")
        assert [notify.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        process.send_signal(number)
        _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (0, "")


def test_the_daemon_tells_in_a_line_when_there_is_no_bus(host: CommandLine) -> None:
    host.bus_address = f"unix:path={host.top}/no-bus"
    ran = host.run("--output", "json", "daemon")
    assert (ran.status, ran.error["code"]) == (1, "machine")
    assert len(ran.err.splitlines()) == 1


def test_the_judge_without_an_order_reports_ready_and_is_done(
    host: CommandLine, notify: socket.socket
) -> None:
    host.environment = {"NOTIFY_SOCKET": notify.getsockname()}
    assert host.run("judge").status == 0
    assert notify.recv(4096).startswith(b"READY=1\n")


def test_the_judge_does_not_report_ready_for_a_record_it_cannot_read(
    host: CommandLine, notify: socket.socket
) -> None:
    host.record.path.parent.mkdir(parents=True, exist_ok=True)
    host.record.path.write_bytes(b"{}")
    host.environment = {"NOTIFY_SOCKET": notify.getsockname()}
    assert host.run("judge").status == 3
    notify.setblocking(False)
    with pytest.raises(BlockingIOError):
        notify.recv(4096)
