"""What a daemon costs that has nothing to do: memory, processor, wake-ups, writes.

    python -m benchmarks.idle --bundle dist/hostsync-0.1.0-linux-amd64.tar.gz

The bundle is installed beneath a temporary directory by its own `install`, and its daemon is run as
the unit does it (READY=1 and WATCHDOG=1 are heard), on a bus with a machined without machines and
a systemd that is played; the API stub is a process of its own, spoken to over TLS with the token
of an exec plugin. Beside it, at the same time: the release's interpreter asleep, which is the
floor, and a daemon without [operations]. Goals: 40 MiB, 0.1 % of a processor, no write.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.processes import Server
from benchmarks.stub import TOKEN
from bundle import BuildOptions, build
from tests.hostsync.fake_systemd import FakeSystemd, FakeUnit
from tests.nspawn.fake_machined import FakeMachined, bus

MACHINE = "kube1"
READY_SECONDS = 120
WATCHDOG_SECONDS = 60
GOALS = "goals: resident at most 40 MiB, processor at most 0.1 %, written 0"
_MIB = 1 << 20
_ASLEEP = "import time; time.sleep(1e9)"
_PLUGIN = """#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",\
"status":{"token":"@TOKEN@","expirationTimestamp":"2099-01-01T00:00:00Z"}}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the kernel has counted for a process and all its threads so far.

    `cpu` in seconds; `wakes` are voluntary context switches, `forced` the others; `written` are
    bytes that go to a disk, `output` those given to write(2), sockets included.
    """

    cpu: float
    wakes: int
    forced: int
    written: int
    output: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read it from /proc."""
        top = Path(f"/proc/{pid}")
        io = _values(top / "io")
        status = [_values(each / "status") for each in top.glob("task/*")]
        return cls(
            cpu=sum(int((each / "schedstat").read_text().split()[0]) for each in top.glob("task/*"))
            / 1e9,
            wakes=sum(each["voluntary_ctxt_switches"] for each in status),
            forced=sum(each["nonvoluntary_ctxt_switches"] for each in status),
            written=io["write_bytes"],
            output=io["wchar"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a process occupies, in bytes; `private` is nobody else's, clean or dirty."""

    resident: int
    proportional: int
    private: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Read it from /proc."""
        found = _values(Path(f"/proc/{pid}/smaps_rollup"))
        status = _values(Path(f"/proc/{pid}/status"))
        return cls(
            resident=status["VmRSS"] * 1024,
            proportional=found["Pss"] * 1024,
            private=(found["Private_Clean"] + found["Private_Dirty"]) * 1024,
            threads=status["Threads"],
        )


def _values(path: Path) -> Mapping[str, int]:
    """The lines of a file of /proc that are a name and a number."""
    return {
        key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+)", path.read_text(), re.M)
    }


class Ground:
    """A directory that stands for a host: its configuration, its bus, its release."""

    def __init__(self, top: Path, address: str) -> None:
        self.top, self._address = top, address
        self.release = top / "lib/current"

    def configure(self, name: str, operations: str = "") -> Path:
        """A configuration by that name; its locks are its own, the release is shared."""
        path = self.top / f"{name}.toml"
        path.write_text(
            f'state_root = "{self.top}/state"\nrun_root = "{self.top}/run-{name}"\n'
            f'unit_root = "{self.top}/units"\n[machines]\nroot = "{self.top}/machines"\n'
            f'[agents.hostsync]\nslot_root = "{self.top}/lib"\nbin_root = "{self.top}/bin"\n'
            f"{operations}"
        )
        return path

    def install(self, bundle: Path) -> None:
        """Install a release by its own command."""
        unpacked = self.top / "unpacked"
        unpacked.mkdir()
        subprocess.run(["tar", "-C", str(unpacked), "-xzf", str(bundle)], check=True)
        program = next(unpacked.rglob("bin/hostsync"))
        config = str(self.configure("install"))
        command = [str(program), "--config", config, "install", str(bundle), "--no-start"]
        subprocess.run(command, check=True, env=self._environment(), stdout=subprocess.DEVNULL)

    @contextmanager
    def daemon(self, name: str, config: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A daemon as its unit runs it, once it has said that it is ready."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(str(self.top / f"notify-{name}"))
            notified.settimeout(READY_SECONDS)
            told = {
                "NOTIFY_SOCKET": notified.getsockname(),
                "WATCHDOG_USEC": str(WATCHDOG_SECONDS * 1_000_000),
            }
            command = [str(self.release / "bin/hostsync"), "--config", str(config), "daemon"]
            with _running(command, self._environment() | told | self._unit_environment()) as one:
                while not notified.recv(4096).startswith(b"READY=1"):
                    pass
                yield one

    @contextmanager
    def asleep(self) -> Iterator[subprocess.Popen[bytes]]:
        """The release's interpreter with nothing but time.sleep."""
        interpreter = str(next(self.release.glob("python/bin/python3.*")))
        with _running([interpreter, "-I", "-S", "-B", "-c", _ASLEEP], {}) as one:
            yield one

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "DBUS_SYSTEM_BUS_ADDRESS": self._address}

    def _unit_environment(self) -> dict[str, str]:
        unit = (self.top / "units/hostsync.service").read_text()
        pairs = re.findall(r"^Environment=(\w+)=(\S+)$", unit, re.M)
        return dict(pairs)


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def operations(server: Server, top: Path) -> str:
    """A table [operations] with a kubeconfig whose user is an exec plugin."""
    plugin = top / "plugin"
    plugin.write_text(_PLUGIN.replace("@TOKEN@", TOKEN))
    plugin.chmod(0o755)
    document = json.loads(server.kubeconfig().read_text())
    stanza = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    document["users"][0]["user"] = {"exec": stanza}
    path = top / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(document))
    return f'[operations]\nmachine = "{MACHINE}"\nkubeconfig = "{path}"\n'


@contextmanager
def candidates(bundle: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """All processes that are measured, by name, settled."""
    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(bus(top / "bus")).address
        systemd, machined = FakeSystemd(address), FakeMachined(address)
        stack.callback(systemd.close)
        stack.callback(machined.close)
        for unit in ("hostsync.service", "hostsync-judge.service"):
            systemd.served.units[unit] = FakeUnit(active="active")
        server = Server(top / "server", "field")
        stack.callback(server.kill)
        ground = Ground(top, address)
        ground.install(bundle)
        orders = ground.configure("orders", operations(server, top))
        plain = ground.configure("plain")
        found = {
            "interpreter": stack.enter_context(ground.asleep()),
            "without [operations]": stack.enter_context(ground.daemon("plain", plain)),
            "daemon": stack.enter_context(ground.daemon("orders", orders)),
        }
        while server.ask().watchers < 2:
            time.sleep(0.2)
        yield found


def line(name: str, used: Usage, memory: Memory, seconds: float) -> str:
    """What one process used in that time, and occupies."""
    minutes = seconds / 60
    return (
        f"{name:21} resident {memory.resident / _MIB:5.1f} MiB "
        f"(proportional {memory.proportional / _MIB:5.1f}, private {memory.private / _MIB:5.1f}), "
        f"{memory.threads} threads, CPU {used.cpu / seconds:.4%}, "
        f"a minute: {used.wakes / minutes:.1f} wake-ups, {used.forced / minutes:.1f} forced "
        f"switches, {used.written / minutes:.0f} bytes written, {used.output / minutes:.0f} output"
    )


def run(bundle: Path, settle: float, seconds: float) -> None:
    """Measure them all at the same time and print a line for each."""
    with candidates(bundle) as processes:
        time.sleep(settle)
        before = {name: Usage.of(each.pid) for name, each in processes.items()}
        time.sleep(seconds)
        for name, each in processes.items():
            after, then = Usage.of(each.pid), before[name]
            used = Usage(
                **{one.name: getattr(after, one.name) - getattr(then, one.name)
                   for one in fields(Usage)}
            )  # fmt: skip
            print(line(name, used, Memory.of(each.pid), seconds), flush=True)
    print(GOALS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="default: one is built")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bundle = options.bundle or build(BuildOptions(output=Path(name), version="1.0.0"))
        run(bundle, options.settle, options.seconds)


if __name__ == "__main__":
    main()
