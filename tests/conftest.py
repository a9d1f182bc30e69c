"""For all tests: scratch space in memory, so that every fsync is real but cheap."""

import os
import shutil
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - a private directory is made beneath it


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
