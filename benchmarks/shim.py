"""Whole-process cost of the shim: wall and CPU, against the interpreter's floor and a peer.

    python -m benchmarks.shim --runs 30

The candidates are run in turn, pairwise interleaved, so that a machine that is busy for a moment
is busy for all of them; ratios are of medians. The launcher of a bundle (/bin/sh, readlink) is
left out: candidates are run as the launcher's exec does. The endpoints are on loopback and answer
at once. "failing" ends with a remembered failure. The peers are a plugin on azure-identity
(benchmarks/peer.py), installed from the package index, and kubelogin where it is on PATH, both by
secret; one that cannot be had, or gets no token, is left out with the reason.
"""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import credential_shim
from benchmarks.peer import make_peer
from tests.credential_shim.entra_server import CLIENT, SECRET, TENANT, EntraServer, refused
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import PYTHON, SERVER_ID, SlotRoot


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A command, how it ends, whether its cache is emptied before each run, and what it took."""

    command: list[str]
    code: int = 0
    cold: Path | None = None
    environ: dict[str, str] = field(default_factory=dict)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self) -> None:
        """One process from spawn to exit; another exit code than expected ends the benchmark."""
        if self.cold is not None:
            shutil.rmtree(self.cold, ignore_errors=True)
        null = os.open("/dev/null", os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, descriptor) for descriptor in (0, 1, 2)]
        start = time.perf_counter()
        child = os.posix_spawn(self.command[0], self.command, self.environ, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        self.wall.append(time.perf_counter() - start)
        self.cpu.append(usage.ru_utime + usage.ru_stime)
        os.close(null)
        if os.waitstatus_to_exitcode(status) != self.code:
            raise SystemExit(f"{self.command[:5]} ended with {status}")


class Bench:
    """The release under test, its endpoints, and the candidates."""

    def __init__(self, path: Path, imds: ImdsServer, entra: EntraServer) -> None:
        self.path, self.imds, self.entra = path, imds, entra
        root = SlotRoot(path / "slots")
        root.path.mkdir()
        release = root.install("blue")
        root.lend_cryptography("blue")
        root.point("blue")
        main = release / "lib" / "hostsync" / "credential_shim" / "__main__.py"
        self._shim = [PYTHON, "-B", "-I", "-S", str(main), "get-token", "--no-config"]
        self._shim += ["--server-id", SERVER_ID]

    def shim(self, name: str, *words: str, cold: bool = False, code: int = 0) -> Candidate:
        """The shim with a cache of its own."""
        cache = self.path / name
        command = [*self._shim, "--cache-dir", str(cache), *words]
        return Candidate(command=command, cold=cache if cold else None, code=code)

    def candidates(self) -> dict[str, Candidate]:
        """Everything that is measured, by name."""
        where = ("--identity-endpoint", self.imds.url)
        authority = ("--authority-host", self.entra.url, "--ca-file", str(self.entra.authority))
        client = ("-l", "spn", "--client-id", CLIENT, "-t", TENANT, *authority)
        secret = (*client, "--client-secret-file", str(self._private("secret", SECRET.encode())))
        certificate = (*client, "--client-certificate", str(self._certificate()))
        return {
            "floor": Candidate(command=[PYTHON, "-B", "-I", "-S", "-c", "pass"]),
            "msi cached": self.shim("msi-cached", *where),
            "msi": self.shim("msi", *where, cold=True),
            "secret cached": self.shim("secret-cached", *secret),
            "secret": self.shim("secret-cold", *secret, cold=True),
            "certificate": self.shim("certificate", *certificate, cold=True),
            "failing": self.shim("failing", *secret, code=6),
        }

    def peer(self) -> Candidate | str:
        """The plugin on azure-identity, by secret, or why it is missing."""
        made = make_peer(self.path)
        if isinstance(made, str):
            return made
        words = [TENANT, CLIENT, str(self.path / "secret"), self.entra.url]
        scope = f"{SERVER_ID}/.default"
        return Candidate(command=[*made, *words, str(self.entra.authority), scope])

    def kubelogin(self) -> Candidate | str:
        """kubelogin by secret, or why it is missing."""
        program = shutil.which("kubelogin")
        if program is None:
            return "kubelogin is not on PATH"
        environ = {
            "AAD_SERVICE_PRINCIPAL_CLIENT_ID": CLIENT,
            "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET": SECRET,
            "HOME": str(self.path),
            "SSL_CERT_FILE": str(self.entra.authority),
        }
        command = [program, "get-token", "--login", "spn", "--server-id", SERVER_ID]
        command += ["--tenant-id", TENANT, "--authority-host", f"{self.entra.url}/"]
        command += ["--disable-instance-discovery"]
        tried = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        if tried.returncode:
            said = (tried.stderr.strip().splitlines() or [""])[-1]
            return f"kubelogin ended with {tried.returncode}: {said.replace(SECRET, '***')}"
        return Candidate(command=command, environ=environ)

    def prime(self, candidates: dict[str, Candidate]) -> None:
        """Fill the caches: a fetch, what is taken for a 401, and then a cached minute."""
        for name in ("msi cached", "secret cached"):
            for _ in range(3):
                candidates[name].run()
        self.entra.then(refused(50196, "invalid_grant"))
        candidates["failing"].run()
        for each in candidates.values():
            each.wall.clear()
            each.cpu.clear()

    def _private(self, name: str, content: bytes) -> Path:
        file = self.path / name
        file.write_bytes(content)
        file.chmod(0o600)
        return file

    def _certificate(self) -> Path:
        key = rsa.generate_private_key(65537, 2048)
        name, now = x509.Name([]), dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1)
            .not_valid_before(now)
            .not_valid_after(now + dt.timedelta(hours=1))
            .sign(key, hashes.SHA256())
        )
        self.entra.certificates.append(certificate)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return self._private("certificate", pem + certificate.public_bytes(Encoding.PEM))


def report(candidates: dict[str, Candidate]) -> None:
    floor = candidates["floor"]
    base = statistics.median(floor.wall)
    print(f"{'':14} {'wall':>9} {'best':>9} {'CPU':>9} {'ratio':>7} {'over floor':>11}")
    for name, each in candidates.items():
        middle = statistics.median(each.wall)
        over = statistics.median(a - b for a, b in zip(each.wall, floor.wall, strict=True))
        print(
            f"{name:14} {middle * 1e3:6.1f} ms {min(each.wall) * 1e3:6.1f} ms "
            f"{statistics.median(each.cpu) * 1e3:6.1f} ms {middle / base:7.2f} {over * 1e3:8.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--no-peer", action="store_true", help="do not install azure-identity")
    options = parser.parse_args()
    # A release brings its bytecode; a fresh checkout would compile everything in every run.
    compileall.compile_dir(Path(credential_shim.__file__).parent, quiet=1)
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        imds, entra = stack.enter_context(ImdsServer()), stack.enter_context(EntraServer(path))
        bench = Bench(path, imds, entra)
        candidates = bench.candidates()
        peers = {"kubelogin": bench.kubelogin()}
        if not options.no_peer:
            peers["azure-identity"] = bench.peer()
        for name, peer in peers.items():
            if isinstance(peer, str):
                print(f"left out: {peer}")
            else:
                candidates[name] = peer
        bench.prime(candidates)
        asked = len(entra.seen)
        for _ in range(options.runs):
            for each in candidates.values():
                each.run()
        per_run = (len(entra.seen) - asked) / options.runs
    report(candidates)
    print(f"requests to Entra per round: {per_run:g} (secret and certificate 1 each, peer's own)")


if __name__ == "__main__":
    main()
