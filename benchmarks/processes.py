"""Benchmarks' own processes, spoken to by lines of JSON: the API stub, and any module of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.stub import LOG, TOKEN, Count, Order
from e2e.records import Exchange, parse_exchanges
from e2e.world.pki import make_authority


class Server:
    """The stub's process; started again it has the same port and the same objects."""

    def __init__(self, home: Path, mode: str) -> None:
        self._home, self._mode, self._port = home, mode, 0
        self._authority = make_authority()
        home.mkdir()
        (home / "ca.pem").write_bytes(self._authority.pem)
        (home / "server.pem").write_bytes(self._authority.issue(("localhost",), ("127.0.0.1",)))
        self._process = self._started()

    def ask(self, *machines: str) -> Count:
        """Have an operation made for each of the machines, and take stock."""
        order = Order(machines=list(machines))
        return msgspec.json.decode(answer(self._process, msgspec.json.encode(order)), type=Count)

    def requests(self) -> tuple[Exchange, ...]:
        """All requests so far, of killed processes too."""
        return parse_exchanges((self._home / LOG).read_text())

    def kill(self) -> None:
        """End it as a power cut would."""
        end(self._process)

    def start(self) -> None:
        """Start it again."""
        self._process = self._started()

    def kubeconfig(self) -> Path:
        """A kubeconfig with a token."""
        url = f"https://127.0.0.1:{self._port}"
        named = {"server": url, "certificate-authority": str(self._home / "ca.pem")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stub", "cluster": named}],
            "users": [{"name": "fleet", "user": {"token": TOKEN}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "fleet"}}],
            "current-context": "stub",
        }
        path = self._home / "kubeconfig"
        path.write_text(json.dumps(document))
        return path

    def _started(self) -> subprocess.Popen[bytes]:
        words = [str(self._home), str(self._port), self._mode]
        process = spawn("benchmarks.stub", *words)
        assert process.stdout is not None
        self._port = int(process.stdout.readline())
        return process


def spawn(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Run one of our modules."""
    command = [sys.executable, "-m", module, *words]
    # Without limits to arenas, thousands of threads would each get memory of their own.
    environment = os.environ | {"MALLOC_ARENA_MAX": "2"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Give a process a line and return the one it answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and let go of it."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
