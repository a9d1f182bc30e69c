"""The releases that the lab installs: one built from the working tree, the others derived from it.

What is wrong with a broken one is wrong with it for real: its launcher exits, never reports, or
needs something that the host has and the machine lacks.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from bundle import BuildOptions, build, repack
from bundle.options import REPOSITORY

HOST_LAUNCHER = "bin/hostsync"
SHIM_LAUNCHER = "bin/hostsync-credential"

CRASH = 'echo "agent: cannot read its state" >&2; exit 1'
EXIT_0 = "exit 0"
HANG = "exec sleep infinity"
LATE_CRASH = "({ sleep 1.5; kill -9 $$; } &)"
IGNORES_TERM = "trap '' TERM; while :; do sleep 1; done"

HOST_ONLY = """[ -x /usr/bin/machinectl ] || {
    echo "error while loading shared libraries: libhostonly.so.1: cannot open shared object" >&2
    exit 127
}"""
"""A program that runs on the host and not in the machine, as one built for another libc would."""

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
        """1.0.0, built from the working tree."""
        path = self._directory / "hostsync-1.0.0.tar.gz"
        if not path.exists():
            self._say("building the release 1.0.0")
            self._directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
                built = build(BuildOptions(output=Path(scratch), version="1.0.0"))
                built.replace(path)
        return path

    def good(self, version: str) -> Path:
        """A release that differs from 1.0.0 in its version alone."""
        return self._derived(version, "good", {})

    def broken_daemon(self, version: str, act: str) -> Path:
        """A release whose daemon does `act` instead of its work."""
        name = hashlib.sha256(act.encode()).hexdigest()[:8]
        return self._derived(version, name, {HOST_LAUNCHER: in_daemon(act)})

    def broken_shim_in_machine(self, version: str) -> Path:
        """A release whose shim runs on the host but not in a machine."""
        return self._derived(version, "host-only", {SHIM_LAUNCHER: HOST_ONLY})

    def wrong_architecture(self, version: str) -> Path:
        """A release whose interpreter is built for the architecture that this host is not."""
        name = "python/bin/python3.11"
        elf = bytearray(_member(self.base(), name))
        elf[_E_MACHINE] = _EM_AARCH64 if elf[_E_MACHINE] != _EM_AARCH64 else _EM_X86_64
        return self.changed(version, "wrong-architecture", {name: bytes(elf)})

    def changed(self, version: str, name: str, files: dict[str, bytes]) -> Path:
        """A release with other files."""
        path = self._directory / f"hostsync-{version}-{name}.tar.gz"
        if not path.exists():
            repack(self.base(), path, version=version, replace=files)
        return path

    def _derived(self, version: str, name: str, launchers: dict[str, str]) -> Path:
        path = self._directory / f"hostsync-{version}-{name}.tar.gz"
        if not path.exists():
            self._say(f"deriving the release {version} ({name})")
            base = self.base()
            files = {
                launcher: _with_prologue(_member(base, launcher), text)
                for launcher, text in launchers.items()
            }
            repack(base, path, version=version, replace=files)
        return path


def _with_prologue(launcher: bytes, text: str) -> bytes:
    """Put shell text at the very start of a launcher, after its first line."""
    first, _, rest = launcher.partition(b"\n")
    return first + b"\n" + text.encode() + b"\n" + rest


def _member(archive: Path, name: str) -> bytes:
    from bundle.archive import read_archive

    return read_archive(archive).tree[name].content


def _fingerprint() -> str:
    """A digest of everything a release is built from, beside the interpreter."""
    total = hashlib.sha256((REPOSITORY / "requirements-dev.lock").read_bytes())
    for package in ("hostsync", "nspawn", "credential_shim", "bundle"):
        for path in sorted((REPOSITORY / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(REPOSITORY)).encode() + b"\0")
                total.update(path.read_bytes())
    return total.hexdigest()[:16]
