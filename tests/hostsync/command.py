"""The command line as a real process, on a host of its own beneath one directory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import hostsync
from hostsync import config
from hostsync.config import Agent
from hostsync.fs import Disk
from hostsync.record import RecordFile
from hostsync.state import HistoryLine, Outcome, State
from tests.extraction import extract
from tests.hostsync.fake_systemd import FakeSystemd, FakeUnit
from tests.hostsync.world import script
from tests.hostsync.zygote import Zygote
from tests.nspawn.fake_machined import FakeMachined, bus

SOURCE = Path(hostsync.__file__).parents[1]
JUDGE = "hostsync-judge.service"
LONG = 60


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    status: int
    out: str
    err: str

    @property
    def values(self) -> list[dict[str, object]]:
        """Every line of its output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Mapping[str, object]:
        """The error that was told as JSON."""
        (value,) = [value["error"] for value in self.values if "error" in value]
        assert isinstance(value, dict)
        return value


@dataclass
class CommandLine:
    """A host with a single-file agent; nothing outside `top` is touched.

    With a zygote its commands are forked from that, else each starts Python anew.
    """

    top: Path
    bus_address: str
    systemd: FakeSystemd | None = None
    zygote: Zygote | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.top.mkdir(exist_ok=True)
        (self.top / "config.toml").write_text(
            f'state_root = "{self.top}/state"\nrun_root = "{self.top}/run"\n'
            f'unit_root = "{self.top}/units"\nreserve_mib = 1\n'
            f'credential_file = "{self.top}/credential.toml"\n'
            f'[machines]\nroot = "{self.top}/machines"\n'
            f'[agents.aks-flex-node]\nslot_root = "{self.top}/lib"\nbin_root = "{self.top}/bin"\n'
        )

    @property
    def agent(self) -> Agent:
        return config.load(self.top / "config.toml").agent(None)

    @property
    def record(self) -> RecordFile:
        return RecordFile(self.top / "state/aks-flex-node", Disk())

    @property
    def state(self) -> State:
        return State(self.top / "state/aks-flex-node", Disk())

    def run(self, *words: str | bytes, prefix: tuple[str, ...] = ()) -> Ran:
        """Run one command to its end."""
        if self.zygote is not None and not prefix:
            argv = [*self._options(), *map(os.fsdecode, words)]
            ran = Ran(*self.zygote.run(argv, self._env(), LONG))
        else:
            done = subprocess.run(
                [*prefix, *self._program(), *words], capture_output=True, check=False,
                cwd=SOURCE, env=self._env(), timeout=LONG, text=True, errors="strict",
            )  # fmt: skip
            ran = Ran(status=done.returncode, out=done.stdout, err=done.stderr)
        assert "Traceback" not in ran.err, ran.err
        return ran

    @contextmanager
    def started(
        self, *words: str, stdout: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; killed in the end if need be."""
        # A test runner under nohup would pass on that SIGHUP is ignored.
        argv = ["env", "--default-signal", *self._program(), *words]
        with subprocess.Popen(
            argv, stdout=stdout, stderr=subprocess.PIPE, cwd=SOURCE, env=self._env(),
            text=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def program(self, version: str, text: str = "") -> Path:
        """A candidate."""
        path = self.top / "candidates" / f"agent-{version}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text or script("aks-flex-node", version, "good"))
        path.chmod(0o755)
        return path

    def installed(self) -> CommandLine:
        """The same host with 1.0.0 installed."""
        with tarfile.open(fileobj=io.BytesIO(_installation())) as files:
            extract(files, self.top)
        return self

    def decide(self, outcome: Outcome, reason: str = "") -> None:
        """Have the order in flight end so as soon as its judge is started."""
        assert self.systemd is not None
        self.systemd.served.at["RestartUnit"] = lambda: self._judge(outcome, reason)

    def _judge(self, outcome: Outcome, reason: str) -> None:
        assert self.systemd is not None
        self.systemd.served.units[JUDGE].active = "active"
        record = self.record.load()
        assert record is not None
        self.state.append(
            HistoryLine(
                order=record.order, agent=record.agent, source=record.source,
                version=record.candidate.version, digest=record.candidate.digest,
                previous_version=record.previous.version, outcome=outcome, reason=reason,
                started_at=record.created_at, ended_at=record.updated_at,
            )
        )  # fmt: skip
        self.record.clear()

    def _options(self) -> list[str]:
        return ["--config", str(self.top / "config.toml")]

    def _program(self) -> list[str]:
        return [sys.executable, "-m", "hostsync", *self._options()]

    def _env(self) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "DBUS_SYSTEM_BUS_ADDRESS": self.bus_address}
        return {**own, **self.environment}


@cache
def _installation() -> bytes:
    """What an installation leaves beside the configuration: relative links, no paths in full."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as top, command_line(Path(top)) as line:
        assert line.run("install", str(line.program("1.0.0")), "--no-start").status == 0
        (line.top / "config.toml").unlink()
        with tarfile.open(fileobj=packed, mode="w") as files:
            files.add(line.top, "")
    assert top.encode() not in packed.getvalue()
    return packed.getvalue()


@contextmanager
def command_line(top: Path, zygote: Zygote | None = None) -> Iterator[CommandLine]:
    """A host whose bus has a systemd with the judge's unit, and a machined without machines."""
    with bus(top / "bus") as running:
        systemd = FakeSystemd(running.address)
        machined = FakeMachined(running.address)
        systemd.served.units[JUDGE] = FakeUnit(active="active")
        systemd.served.units["aks-flex-node-agent.service"] = FakeUnit(active="active")
        try:
            yield CommandLine(top / "host", running.address, systemd, zygote)
        finally:
            machined.close()
            systemd.close()
