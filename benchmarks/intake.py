"""A release from the network to its slot, against the tools that do the bare minimum.

    python -m benchmarks.intake --bundle dist/hostsync-0.1.0-linux-amd64.tar.gz

The floor is `curl`, then `sha256sum`, then `gzip -dc` into a file that is flushed: nothing is
judged, and a tree is not even unpacked; `untar` is the same with `tar -x` into a synced tree. All
are measured in turn, as processes of their own, against the same server on loopback and the same
disk; ratios are of medians.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from hostsync.clock import SystemClock
from hostsync.fs import Disk
from hostsync.model import Digest, SlotKind
from hostsync.release import host_arch, open_candidate
from hostsync.release.fetch import Means, fetch
from hostsync.release.setback import Terms
from hostsync.release.url import DownloadUrl

AGENTS = {SlotKind.FILE: "aks-flex-node", SlotKind.BUNDLE: "hostsync"}
FLOOR = (
    'curl -sS "$1" -o "$2/archive" && sha256sum "$2/archive" >/dev/null && '
    'gzip -dc "$2/archive" | dd of="$2/content" bs=128k iflag=fullblock conv=fsync status=none'
)
UNTAR = (
    'curl -sS "$1" -o "$2/archive" && sha256sum "$2/archive" >/dev/null && '
    'tar -C "$2" -xzf "$2/archive" && sync -f "$2"'
)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One process: seconds on the wall and of the processor, and its peak memory in bytes."""

    wall: float
    cpu: float
    memory: int


def measure(command: list[str]) -> Cost:
    """Run it; it has to succeed. Memory is of the largest process among it and its children."""
    start = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[:4]} failed: {child.returncode}")
    return Cost(wall=wall, cpu=usage.ru_utime + usage.ru_stime, memory=usage.ru_maxrss * 1024)


def take(url: str, digest: str, kind: SlotKind, directory: Path) -> None:
    """What `upgrade` does before it asks the candidate anything: fetch, inspect, stage."""
    terms = Terms(insecure_hosts=frozenset({"127.0.0.1"}))
    means = Means(fs=Disk(), clock=SystemClock(), terms=terms)
    with (
        fetch(DownloadUrl.parse(url), Digest(digest), directory, means) as opened,
        open_candidate(opened, agent=AGENTS[kind], kind=kind) as candidate,
    ):
        candidate.stage(directory / "slot", Disk())


def binary_archive(size: int) -> bytes:
    """An archive of one executable, made of real machine code up to `size` bytes."""
    objects = sorted(Path(sys.prefix).rglob("*.so"), key=lambda path: -path.stat().st_size)
    code = b"".join(path.read_bytes() for path in objects[:40])
    content = (code * (size // len(code) + 1))[:size]
    buffer = BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        member = tarfile.TarInfo(f"{AGENTS[SlotKind.FILE]}-linux-{host_arch()}")
        member.size, member.mode = len(content), 0o755
        archive.addfile(member, BytesIO(content))
    return buffer.getvalue()


def compare(name: str, kind: SlotKind, top: Path, base: str, runs: int) -> None:
    """Print what both cost for the archive `name` that the server at `base` serves."""
    with open(top / "served" / name, "rb") as file:
        url, digest = f"{base}/{name}", hashlib.file_digest(file, "sha256").hexdigest()
    work = top / "work"
    child = [sys.executable, "-m", "benchmarks.intake", "--take", url, digest, kind, str(work)]
    commands = {
        "floor": ["sh", "-c", FLOOR, "sh", url, str(work)],
        "untar": ["sh", "-c", UNTAR, "sh", url, str(work)],
        "intake": child,
    }
    costs: dict[str, list[Cost]] = {key: [] for key in commands}
    for _ in range(runs):
        for key, command in commands.items():
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            os.sync()
            costs[key].append(measure(command))
    floor = costs["floor"]
    print(f"{name}, {(top / 'served' / name).stat().st_size / _MIB:.1f} MiB, {runs} runs")
    for key, found in costs.items():
        wall, cpu = (statistics.median(getattr(c, what) for c in found) for what in ("wall", "cpu"))
        ratios = (
            wall / statistics.median(c.wall for c in floor),
            cpu / statistics.median(c.cpu for c in floor),
        )
        memory = max(c.memory for c in found) / _MIB
        print(
            f"  {key:7} wall {wall:6.2f} s ({ratios[0]:4.2f})  cpu {cpu:6.2f} s ({ratios[1]:4.2f})"
            f"  peak memory {memory:6.1f} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="a bundle of hostsync, measured too")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, nargs="*", default=[25, 100])
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: /tmp's")
    parser.add_argument("--make", nargs=2, metavar=("MIB", "PATH"))
    parser.add_argument("--take", nargs=4, metavar=("URL", "SHA256", "KIND", "DIRECTORY"))
    options = parser.parse_args()
    if options.make:
        mib, path = options.make
        Path(path).write_bytes(binary_archive(int(mib) * _MIB))
        return
    if options.take:
        url, digest, kind, directory = options.take
        take(url, digest, SlotKind(kind), Path(directory))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        run(Path(name), options.bundle, options.mib, options.runs)


def run(top: Path, bundle: Path | None, sizes: list[int], runs: int) -> None:
    served = top / "served"
    served.mkdir()
    archives = [(f"binary-{mib}.tar.gz", SlotKind.FILE) for mib in sizes]
    for mib, (name, _) in zip(sizes, archives, strict=True):
        # In a process of its own: what a parent had in memory counts as its children's peak.
        make = [sys.executable, "-m", "benchmarks.intake", "--make", str(mib), str(served / name)]
        subprocess.run(make, check=True)
    if bundle:
        shutil.copy(bundle, served / "bundle.tar.gz")
        archives.append(("bundle.tar.gz", SlotKind.BUNDLE))
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    server = subprocess.Popen(
        [*command, "-d", str(served)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    try:
        # "Serving HTTP on 127.0.0.1 port 43210 (http://127.0.0.1:43210/) ..."
        base = server.stdout.readline().partition("(")[2].partition("/)")[0]
        for name, kind in archives:
            compare(name, kind, top, base, runs)
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


if __name__ == "__main__":
    main()
