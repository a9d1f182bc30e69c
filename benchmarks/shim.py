"""Whole-process cost of the shim: interpreter floor, cached credential, fetched credential.

    python -m benchmarks.shim --runs 40

The candidates are run in turn, pairwise interleaved, so that a machine that is busy for a moment
is busy for all of them; ratios are of medians. The launcher of a bundle (/bin/sh, readlink) is
left out: candidates are run as the launcher's exec does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import PYTHON, SERVER_ID, SlotRoot


def measure(command: list[str]) -> float:
    """Wall seconds of one process from spawn to exit; it has to succeed."""
    null = os.open("/dev/null", os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, descriptor) for descriptor in (0, 1)]
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, {}, file_actions=actions)
    _, status = os.waitpid(child, 0)
    elapsed = time.perf_counter() - start
    os.close(null)
    if status:
        raise SystemExit(f"{command[:4]} failed: {status}")
    return elapsed


def compare(runs: int, imds: ImdsServer, path: Path) -> dict[str, list[float]]:
    root = SlotRoot(path / "slots")
    root.path.mkdir()
    release = root.install("blue")
    root.point("blue")
    main = release / "lib" / "hostsync" / "credential_shim" / "__main__.py"
    where = ["--server-id", SERVER_ID, "--identity-endpoint", imds.url]
    shim = [PYTHON, "-B", "-I", "-S", str(main), "get-token", *where, "--cache-dir"]
    cached, cold = path / "cached", path / "cold"
    commands = {
        "floor": [PYTHON, "-B", "-I", "-S", "-c", "pass"],
        "cached": [*shim, str(cached)],
        "fetched": [*shim, str(cold)],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    # Three runs of one parent: fetch, taken for a 401, then cached for a minute.
    for _ in range(3):
        measure(commands["cached"])
    for _ in range(runs):
        for name, command in commands.items():
            shutil.rmtree(cold, ignore_errors=True)
            times[name].append(measure(command))
    if len(imds.seen) != 2 + runs:
        raise SystemExit(f"the cached path asked the endpoint: {len(imds.seen)} requests")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory, ImdsServer() as imds:
        times = compare(runs, imds, Path(directory))
    floor = statistics.median(times["floor"])
    print(f"{'':8} {'median':>9} {'best':>9} {'ratio':>7} {'over floor':>11}")
    for name, values in times.items():
        middle = statistics.median(values)
        over = statistics.median(
            value - base for value, base in zip(values, times["floor"], strict=True)
        )
        print(
            f"{name:8} {middle * 1e3:6.1f} ms {min(values) * 1e3:6.1f} ms "
            f"{middle / floor:7.2f} {over * 1e3:8.1f} ms"
        )


if __name__ == "__main__":
    main()
