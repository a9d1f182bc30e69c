from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nspawn.machined import Machined
from nspawn.rootfs import Directory
from tests.nspawn.fake_machined import FakeMachined, bus

INNER = Path("/usr/local/lib/agent")
TEMP_PREFIX = ".agent-tmp-"


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """The rootfs of a machine, as the host sees it."""
    path = tmp_path / "machines" / "kube1"
    (path / "usr" / "local").mkdir(parents=True)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Something of the host that no guest's link may lead into."""
    path = tmp_path / "host"
    path.mkdir()
    (path / "precious").write_text("as it was")
    return path


@pytest.fixture
def directory(rootfs: Path) -> Iterator[Directory]:
    with Directory.open(rootfs, INNER, create=True, temp_prefix=TEMP_PREFIX) as opened:
        yield opened


@pytest.fixture
def place(rootfs: Path) -> Path:
    """The same directory by its path on the host."""
    return rootfs / INNER.relative_to("/")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A small tree to copy."""
    top = tmp_path / "release"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "agent").write_bytes(b"\x7fELF" + bytes(70_000))
    (top / "bin" / "agent").chmod(0o755)
    (top / "empty").mkdir(mode=0o750)
    (top / "RELEASE").write_text("version=1\n")
    return top


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with bus(tmp_path / "bus") as running_bus:
        yield running_bus.address


@pytest.fixture
def fake(address: str) -> Iterator[FakeMachined]:
    fake = FakeMachined(address)
    yield fake
    fake.close()


@pytest.fixture
def machined(address: str, fake: FakeMachined) -> Iterator[Machined]:
    with Machined.connect(address) as machined:
        yield machined
