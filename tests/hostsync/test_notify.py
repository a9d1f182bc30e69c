"""The service's word to systemd, as a real socket hears it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostsync.notify import tell_systemd, watchdog_seconds


@pytest.fixture(params=["path", "abstract"])
def systemd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(60)
        listening.bind(name if request.param == "path" else f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", name if request.param == "path" else f"@{name}")
        yield listening


def test_messages_arrive_whole_and_in_order(systemd: socket.socket) -> None:
    tell_systemd("READY=1\nSTATUS=keeping machines in step")
    tell_systemd("WATCHDOG=1")
    assert systemd.recv(4096) == b"READY=1\nSTATUS=keeping machines in step"
    assert systemd.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", [None, "", "/nonexistent/notify", "@nobody", "vsock:2:1", "@"])
def test_without_a_listener_a_message_is_lost_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    tell_systemd("READY=1")


def test_the_watchdog_is_that_of_this_process_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1500000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert watchdog_seconds() == 1.5
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert watchdog_seconds() == 1.5
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
    assert watchdog_seconds() is None


@pytest.mark.parametrize("text", [None, "", "0", "-5", "1.5", "\N{SUPERSCRIPT TWO}", "9" * 30, "x"])
def test_no_usable_time_means_no_watchdog(
    monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if text is None:
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_USEC", text)
    assert watchdog_seconds() is None
