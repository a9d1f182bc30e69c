"""For all tests: scratch space in memory, so that every fsync is real but cheap, and no leaks."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


def pytest_configure(config: pytest.Config) -> None:
    """Put `tmp_path` on tmpfs where there is one that allows execution."""
    if config.option.basetemp is None and _usable(MEMORY):
        config.option.basetemp = str(MEMORY / f"hostsync-tests-{os.getpid()}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind in memory."""
    base = Path(config.option.basetemp or "/nonexistent")
    if base.parent == MEMORY and base.name.startswith("hostsync-tests-"):
        shutil.rmtree(base, ignore_errors=True)


def _usable(directory: Path) -> bool:
    if not os.access(directory, os.W_OK):
        return False
    flags = os.statvfs(directory).f_flag
    return not flags & (os.ST_NOEXEC | os.ST_RDONLY)


@pytest.fixture(autouse=True)
def leaks_nothing() -> Iterator[None]:
    """No test may leave a descriptor or a child process behind."""
    before = _descriptors(), _children()
    yield
    assert (_descriptors(), _children()) == before


def _descriptors() -> dict[str, str]:
    links = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            links[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # This is the descriptor that the listing itself used.
    return links


def _children() -> set[str]:
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for pids in lists for pid in pids.read_text().split()}
