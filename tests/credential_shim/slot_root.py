"""A slot root as a bundle lays it out, with releases whose shim runs under this interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cryptography

import credential_shim

SERVER_ID = "6dae42f8-4368-4678-94ff-3960e28e3630"
PYTHON = os.path.realpath(sys.executable)
HUNG_SECONDS = 120.0
"""A run that takes longer hangs. That one ends within its 8 s is the shim's own clock's business:
its cause says whether the work ended in time or was stopped, however busy this machine is."""
LAUNCHER = """\
#!/bin/sh
self=$(/usr/bin/readlink -f "$0")
exec {python} -I -S -B -X utf8 "${{self%/bin/*}}/lib/hostsync/credential_shim/__main__.py" "$@"
"""


def seal_bytes(version: str = "1.0.0", digest: str = "a", protocol: int = 1) -> bytes:
    """A seal's canonical bytes; ``digest`` is one hex digit, repeated."""
    return (
        f"agent=hostsync\nversion={version}\nsha256={digest * 64}\nprotocol={protocol}\n"
    ).encode()


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a shim did."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True, slots=True)
class SlotRoot:
    """A slot root under ``path``."""

    path: Path

    def install(self, slot: str, seal: bytes | None = None) -> Path:
        """Put a working release into ``slot``, with this seal."""
        release = self.path / slot
        package = release / "lib" / "hostsync" / "credential_shim"
        shutil.copytree(Path(credential_shim.__file__).parent, package)
        launcher = release / "bin" / "hostsync-credential"
        launcher.parent.mkdir()
        launcher.write_text(LAUNCHER.format(python=PYTHON))
        launcher.chmod(0o755)
        self.seal(slot, seal_bytes() if seal is None else seal)
        return release

    def lend_cryptography(self, slot: str) -> None:
        """Have ``slot`` find the packages that a bundle carries beside the shim."""
        site = Path(cryptography.__file__).parent.parent
        for name in ("cryptography", "cffi", *(path.name for path in site.glob("_cffi_backend*"))):
            (self.path / slot / "lib" / "hostsync" / name).symlink_to(site / name)

    def seal(self, slot: str, seal: bytes) -> None:
        """Write the seal of ``slot``."""
        (self.path / slot / "RELEASE").write_bytes(seal)

    def point(self, slot: str, *, age: float = 3600.0) -> None:
        """Make ``current`` a relative link to ``slot``, switched ``age`` seconds ago."""
        temporary = self.path / ".current"
        temporary.symlink_to(slot)
        self.backdate(temporary, age)
        temporary.replace(self.path / "current")

    def want(self, seal: bytes, *, age: float = 3600.0) -> None:
        """Write WANTED by rename, as into a mirror."""
        temporary = self.path / ".WANTED"
        temporary.write_bytes(seal)
        self.backdate(temporary, age)
        temporary.replace(self.path / "WANTED")

    @staticmethod
    def backdate(path: Path, age: float) -> None:
        status = os.lstat(path)
        moment = status.st_ctime - age
        os.utime(path, (moment, moment), follow_symlinks=False)

    def shim(self, slot: str = "current") -> str:
        """Path of the launcher of ``slot``."""
        return str(self.path / slot / "bin" / "hostsync-credential")

    def run(
        self, *words: str, slot: str = "current", environ: Mapping[str, str] | None = None
    ) -> Run:
        """Run the shim under a parent of its own, as each kubectl is."""
        parent = ["/bin/sh", "-c", '"$0" "$@"; exit $?']
        return run([*parent, self.shim(slot), *words], environ)

    def run_again(self, *words: str) -> Run:
        """Run the shim as a direct child of the test: all such runs have the same parent."""
        return run([self.shim(), *words])


def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Run:
    """Run to the end as kubelet does: stdin /dev/null, outputs piped; default: no environment."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dict(environ or {}),
        timeout=HUNG_SECONDS,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr.decode())
