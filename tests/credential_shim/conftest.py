"""Fixtures: an identity service, a slot root with a selected release, its own cache."""

from __future__ import annotations

import compileall
from collections.abc import Iterator
from pathlib import Path

import pytest

import credential_shim
from tests.credential_shim.entra_server import CLIENT, SECRET, TENANT, EntraServer
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import SERVER_ID, SlotRoot


@pytest.fixture(scope="session", autouse=True)
def compiled_package() -> None:
    """Copies of the package start from bytecode, as they do in a bundle."""
    compileall.compile_dir(Path(credential_shim.__file__).parent, quiet=1)


@pytest.fixture
def imds() -> Iterator[ImdsServer]:
    with ImdsServer() as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> SlotRoot:
    """A slot root whose ``current`` is blue, 1.0.0."""
    path = tmp_path / "slots"
    path.mkdir()
    root = SlotRoot(path)
    root.install("blue")
    root.point("blue")
    return root


@pytest.fixture
def flags(imds: ImdsServer, tmp_path: Path) -> tuple[str, ...]:
    """Flags that point a shim at the test's own service and cache."""
    cache = tmp_path / "cache"
    return (
        "--no-config",
        "--server-id",
        SERVER_ID,
        "--identity-endpoint",
        imds.url,
        "--cache-dir",
        str(cache),
    )


@pytest.fixture
def entra(tmp_path: Path) -> Iterator[EntraServer]:
    with EntraServer(tmp_path) as server:
        yield server


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """A private file with the client's secret."""
    file = tmp_path / "client-secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def client_flags(entra: EntraServer, tmp_path: Path) -> tuple[str, ...]:
    """Flags for a client of the test's own Entra, without a proof."""
    settings = {
        "--server-id": SERVER_ID,
        "--login": "spn",
        "--client-id": CLIENT,
        "--tenant-id": TENANT,
        "--authority-host": entra.url,
        "--ca-file": str(entra.authority),
        "--cache-dir": str(tmp_path / "cache"),
    }
    return ("--no-config", *(word for pair in settings.items() for word in pair))
