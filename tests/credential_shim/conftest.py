"""Fixtures: an identity service, a slot root with a selected release, its own cache."""

from __future__ import annotations

import compileall
from collections.abc import Iterator
from pathlib import Path

import pytest

import credential_shim
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
        "--server-id",
        SERVER_ID,
        "--identity-endpoint",
        imds.url,
        "--cache-dir",
        str(cache),
    )
