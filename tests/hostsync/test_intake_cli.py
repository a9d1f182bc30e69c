"""How `upgrade` takes a place, and how it shows the way of a download."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hostsync.cli.orders import parse_order
from hostsync.cli.progress import Progress
from hostsync.cli.session import Session
from hostsync.errors import ConfigError
from hostsync.model import Digest
from hostsync.release.url import DownloadUrl
from tests.hostsync.command import LONG
from tests.hostsync.release.web_server import head, serving, stalling

HEX = "0123456789abcdef" * 4
MIB = 1 << 20


class Terminal(io.StringIO):
    """Keeps what is drawn, and what of it a person would see."""

    def isatty(self) -> bool:
        return True

    @property
    def seen(self) -> str:
        return self.getvalue().rpartition("\x1b[K")[2]


@dataclass(slots=True)
class Shown:
    """A progress whose clock is in the test's hand."""

    progress: Progress
    now: list[float]
    stream: io.StringIO

    def at(self, seconds: float, done: int, total: int | None = 10 * MIB) -> None:
        self.now[0] = seconds
        self.progress.show(done, total)


@dataclass(slots=True)
class Making:
    now: list[float] = field(default_factory=lambda: [0.0])

    def shown(self, stream: io.StringIO, *, as_json: bool = False) -> Shown:
        session = Session(agent=None, as_json=as_json, config=Path("/nonexistent"))
        return Shown(Progress(session, lambda: self.now[0], stream), self.now, stream)


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()
    shown = Making().shown(terminal)
    shown.at(1, 2 * MIB)
    assert terminal.seen == "fetching  2.0 of 10.0 MiB  2.0 MiB/s  0:04 left"
    shown.at(1.1, 3 * MIB)
    assert terminal.seen.startswith("fetching  2.0 ")
    shown.at(2, 8 * MIB)
    assert terminal.seen == "fetching  8.0 of 10.0 MiB  4.0 MiB/s  0:00 left"
    shown.progress.close()
    assert terminal.seen == ""
    assert "\n" not in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_a_plain_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    shown = Making().shown(stream)
    for second in range(25):
        shown.at(second, second * MIB, None)
    shown.progress.close()
    assert capsys.readouterr().out.splitlines() == [
        "fetching  10.0 MiB  1.0 MiB/s",
        "fetching  20.0 MiB  1.0 MiB/s",
    ]
    assert stream.getvalue() == ""


def test_json_gets_an_event_each_second_even_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()
    shown = Making().shown(terminal, as_json=True)
    for tenth in range(25):
        shown.at(tenth / 10, tenth * MIB, 99 * MIB)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["progress"]["done"] for line in lines] == [10 * MIB, 20 * MIB]
    assert lines[0]["progress"] == {
        "done": 10 * MIB, "total": 99 * MIB, "bytes_per_second": 10 * MIB
    }  # fmt: skip
    assert terminal.getvalue() == ""


def test_a_download_that_begins_anew_is_shown_from_its_new_beginning() -> None:
    terminal = Terminal()
    shown = Making().shown(terminal)
    shown.at(10, 9 * MIB)
    shown.at(11, 0)
    shown.at(12, 2 * MIB)
    assert terminal.seen == "fetching  2.0 of 10.0 MiB  2.0 MiB/s  0:04 left"


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    shown = Making().shown(Gone())
    shown.at(1, MIB)
    shown.at(2, 2 * MIB)
    shown.progress.close()


def test_a_place_is_a_path_or_a_url_and_the_digest_in_any_spelling() -> None:
    url = DownloadUrl.parse("https://host/x?sig=1")
    assert parse_order("https://host/x?sig=1", f"sha256:{HEX.upper()}") == (url, Digest(HEX))
    assert parse_order("file:///x", None) == (Path("/x"), None)
    assert parse_order("x.tar.gz", None) == (Path("x.tar.gz"), None)


def test_a_url_is_read_from_standard_input_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("https://host/x?sig=1\nrest\n"))
    assert parse_order("-", None) == (DownloadUrl.parse("https://host/x?sig=1"), None)


@pytest.mark.parametrize(
    ("place", "digest"), [("https://u@host/x", HEX), ("ftp://host/x", HEX), ("x", "abc")]
)
def test_what_cannot_be_understood_is_an_error_of_usage(place: str, digest: str) -> None:
    with pytest.raises(ConfigError, match="--help"):
        parse_order(place, digest)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_download_ends_at_once_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    slots = tmp_path / "slots"
    slots.mkdir()
    config = tmp_path / "config.toml"
    config.write_text(
        f'state_root = "{tmp_path}/state"\nrun_root = "{tmp_path}/run"\n'
        f'[agents.hostsync]\nslot_root = "{slots}"\nbin_root = "{tmp_path}/bin"\n'
        '[download]\ninsecure_hosts = ["127.0.0.1"]\n'
    )
    begun = stalling(head(200, {"content-length": "999999"}) + bytes(9999), lambda: server)
    with serving(begun) as server:
        words = ["--config", str(config), "upgrade", server.url("/x?sig=CANARY"), "--sha256", HEX]
        child = subprocess.Popen(
            [sys.executable, "-m", "hostsync", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.has_answered.wait(30)
        child.send_signal(number)
        out, err = child.communicate(timeout=LONG)
    assert child.returncode == 130
    assert "interrupted" in err
    assert "fetch started" in out
    assert "CANARY" not in out + err
    assert os.listdir(slots) == []
    assert not (tmp_path / "state").exists()
