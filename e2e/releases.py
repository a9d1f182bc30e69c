"""The releases that the lab installs: one built from the working tree, the others derived from it.

What is wrong with a broken one is wrong with it for real: its launcher exits, never reports, or
needs something that the host has and the machine lacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from bundle import BuildOptions, build
from bundle.archive import Release, read_archive, write_archive
from bundle.cache import default_directory
from bundle.options import REPOSITORY
from bundle.repack import derive

HOST_LAUNCHER = "bin/hostsync"
SHIM_LAUNCHER = "bin/hostsync-credential"

CRASH = 'echo "agent: cannot read its state" >&2; exit 1'
EXIT_0 = "exit 0"
HANG = "exec sleep infinity"
LATE_CRASH = "({ sleep 0.6; kill -9 $$; } &)"
GO = "/run/go"
HELD = f"until [ -e {GO} ]; do sleep 0.05; done"
"""Good, but it does not start before a test lets it go."""
IGNORES_TERM = "trap '' TERM; while :; do sleep 1; done"

HOST_ONLY = """[ -x /usr/bin/machinectl ] || {
    echo "error while loading shared libraries: libhostonly.so.1: cannot open shared object" >&2
    exit 127
}"""
"""A program that runs on the host and not in the machine, as one built for another libc would."""

KEPT_SECONDS = 86400.0
"""How long the releases of another state of the tree are kept."""

_E_MACHINE = 18
_EM_X86_64, _EM_AARCH64 = 62, 183


def in_daemon(act: str) -> str:
    """Launcher text that does something when the daemon is started, and nothing otherwise."""
    return f'[ "${{1:-}}" != daemon ] || {{ {act}; }}'


class Releases:
    """Releases by version, made when they are first asked for and kept between runs by content."""

    def __init__(self, cache: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._directory = cache / "releases" / _fingerprint()
        self._say = say

    def base(self) -> Path:
        """1.0.0, built from the working tree; two runs at once wait for each other."""
        path = self._directory / "hostsync-1.0.0.tar.gz"
        self._directory.mkdir(parents=True, exist_ok=True)
        os.utime(self._directory)
        with (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._say("building the release 1.0.0")
                forget_old(self._directory)
                with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
                    known = default_directory(os.environ)
                    built = build(BuildOptions(output=Path(scratch), version="1.0.0", cache=known))
                    built.replace(path)
        return path

    def good(self, version: str) -> Path:
        """A release that differs from 1.0.0 in its version alone."""
        return self._derived(version, "good", {})

    def broken_daemon(self, version: str, act: str) -> Path:
        """A release whose daemon does `act` instead of its work."""
        name = hashlib.sha256(act.encode()).hexdigest()[:8]
        return self._with_launcher(version, name, HOST_LAUNCHER, in_daemon(act))

    def broken_shim_in_machine(self, version: str) -> Path:
        """A release whose shim runs on the host but not in a machine."""
        return self._with_launcher(version, "host-only", SHIM_LAUNCHER, HOST_ONLY)

    def wrong_architecture(self, version: str) -> Path:
        """A release whose interpreter is built for the architecture that this host is not."""
        name = "python/bin/python3.11"
        elf = bytearray(self._base.tree[name].content)
        elf[_E_MACHINE] = _EM_AARCH64 if elf[_E_MACHINE] != _EM_AARCH64 else _EM_X86_64
        return self._derived(version, "wrong-architecture", {name: bytes(elf)})

    def _with_launcher(self, version: str, name: str, launcher: str, text: str) -> Path:
        changed = _with_prologue(self._base.tree[launcher].content, text)
        return self._derived(version, name, {launcher: changed})

    def _derived(self, version: str, name: str, files: Mapping[str, bytes]) -> Path:
        path = self._directory / f"hostsync-{version}-{name}.tar.gz"
        if not path.exists():
            self._say(f"deriving the release {version} ({name})")
            write_archive(derive(self._base, version=version, replace=files), path)
        return path

    @cached_property
    def _base(self) -> Release:
        """1.0.0 in memory, since reading it takes longer than changing it."""
        return read_archive(self.base())


def _with_prologue(launcher: bytes, text: str) -> bytes:
    """Put shell text at the very start of a launcher, after its first line."""
    first, _, rest = launcher.partition(b"\n")
    return first + b"\n" + text.encode() + b"\n" + rest


def forget_old(directory: Path) -> None:
    """Remove the releases of other states of the tree that nobody has used for a day."""
    for other in directory.parent.iterdir():
        if other != directory and other.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _fingerprint() -> str:
    """A digest of everything a release is built from; the interpreter's build stands for it."""
    total = hashlib.sha256((REPOSITORY / "requirements-dev.lock").read_bytes())
    total.update(sys.version.encode())
    for package in ("hostsync", "nspawn", "credential_shim", "bundle"):
        for path in sorted((REPOSITORY / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(REPOSITORY)).encode() + b"\0")
                total.update(path.read_bytes())
    return total.hexdigest()[:16]
