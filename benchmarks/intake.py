"""A release from the network to its slot, against the tools that do the bare minimum.

    python -m benchmarks.intake --bundle dist/hostsync-0.1.0-linux-amd64.tar.gz

What intake is compared with begins with `curl` and `sha256sum`, judges nothing, and goes on so:

    floor   `gzip -dc` into a file that is flushed; of a tree none is made
    zlib    the same, inflated by the zlib that intake uses: how much of the floor is gzip's own
    isal    the same with isal, where that is installed
    untar   `tar -xz` into a tree, and the filesystem is synced
    tree    the same, and every file of the tree is hashed, as a content digest needs it

All are measured in turn, as processes of their own, against the same server on loopback and the
same disk. A ratio is of intake to another command in the same turn, the median of all turns, with
the least and the greatest: other load on the machine is then on both sides.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from hostsync.model import SlotKind
from hostsync.release import host_arch

_BINARY = "aks-flex-node"
_FETCH = 'curl -sS "$1" -o "$2/archive" && sha256sum "$2/archive" >/dev/null && '
FLOOR = (
    _FETCH
    + 'gzip -dc "$2/archive" | dd of="$2/content" bs=128k iflag=fullblock conv=fsync status=none'
)
UNTAR = _FETCH + 'tar -C "$2" -xzf "$2/archive" && sync -f "$2"'
TREE = (
    _FETCH + 'mkdir "$2/tree" && tar -C "$2/tree" -xzf "$2/archive" && '
    'find "$2/tree" -type f -print0 | xargs -0 sha256sum >/dev/null && sync -f "$2"'
)
INFLATE = """
import os, sys
if sys.argv[1] == "isal":
    from isal import isal_zlib as zlib
else:
    import zlib
inflater = zlib.decompressobj(31)
with open(sys.argv[2], "rb") as archive, open(sys.argv[3], "wb", buffering=0) as content:
    while not inflater.eof:
        data = inflater.unconsumed_tail or archive.read(1 << 18)
        content.write(inflater.decompress(data, 1 << 17))
    os.fsync(content.fileno())
"""
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
        member = tarfile.TarInfo(f"{_BINARY}-linux-{host_arch()}")
        member.size, member.mode = len(content), 0o755
        archive.addfile(member, BytesIO(content))
    return buffer.getvalue()


def compare(name: str, kind: SlotKind, top: Path, base: str, runs: int) -> None:
    """Print what both cost for the archive `name` that the server at `base` serves."""
    with open(top / "served" / name, "rb") as file:
        url, digest = f"{base}/{name}", hashlib.file_digest(file, "sha256").hexdigest()
    work = top / "work"
    child = [sys.executable, "-m", "benchmarks.take", url, digest, kind, str(work)]
    commands = {
        "floor": ["sh", "-c", FLOOR, "sh", url, str(work)],
        **{key: ["sh", "-c", _inflating(key), "sh", url, str(work)] for key in _inflaters()},
        "untar": ["sh", "-c", UNTAR, "sh", url, str(work)],
        "tree": ["sh", "-c", TREE, "sh", url, str(work)],
        "intake": child,
    }
    costs: dict[str, list[Cost]] = {key: [] for key in commands}
    load = os.getloadavg()[0]
    for _ in range(runs):
        for key, command in commands.items():
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            os.sync()
            costs[key].append(measure(command))
    size = (top / "served" / name).stat().st_size / _MIB
    loads = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{name}, {size:.1f} MiB, {runs} runs, {os.cpu_count()} processors, {loads}")
    for key, found in costs.items():
        wall = statistics.median(cost.wall for cost in found)
        cpu = statistics.median(cost.cpu for cost in found)
        memory = max(cost.memory for cost in found) / _MIB
        print(
            f"  {key:7} wall {wall:6.2f} s  cpu {cpu:6.2f} s  peak memory {memory:6.1f} MiB"
            f"  intake takes {_ratio(costs, key, 'wall')}, cpu {_ratio(costs, key, 'cpu')}"
        )


def _ratio(costs: dict[str, list[Cost]], key: str, what: str) -> str:
    """Intake to another command: the median of the turns, and the least and the greatest."""
    pairs = zip(costs["intake"], costs[key], strict=True)
    ratios = sorted(getattr(one, what) / getattr(other, what) for one, other in pairs)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _inflaters() -> tuple[str, ...]:
    return ("zlib", "isal") if find_spec("isal") else ("zlib",)


def _inflating(key: str) -> str:
    """Like the floor, with another inflater."""
    path = " ".join((shlex.quote(sys.executable), "-c", shlex.quote(INFLATE), key))
    return f'{_FETCH} {path} "$2/archive" "$2/content"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, help="a bundle of hostsync, measured too")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, nargs="*", default=[25, 100])
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: /tmp's")
    parser.add_argument("--make", nargs=2, metavar=("MIB", "PATH"))
    options = parser.parse_args()
    if options.make:
        mib, path = options.make
        Path(path).write_bytes(binary_archive(int(mib) * _MIB))
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
