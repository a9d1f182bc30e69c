"""For all tests: scratch space in memory, so that every fsync is real but cheap, and no leaks."""

import gc
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

# An example may take as long as the machine needs. Where CI is set, hypothesis itself draws the
# same examples each time.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

MEMORY = Path("/dev/shm")
GRACE_SECONDS = 30.0


def pytest_configure(config: pytest.Config) -> None:
    """Put `tmp_path` on tmpfs where there is one that allows execution."""
    if config.option.basetemp is None and _usable(MEMORY):
        config.option.basetemp = str(MEMORY / f"hostsync-tests-{os.getpid()}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind in memory."""
    base = Path(config.option.basetemp or "/nonexistent")
    if base.parent == MEMORY and base.name.startswith("hostsync-tests-"):
        shutil.rmtree(base, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need root say so and are skipped without."""
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_collection_finish() -> None:
    """What was collected lives to the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def _usable(directory: Path) -> bool:
    if not os.access(directory, os.W_OK):
        return False
    flags = os.statvfs(directory).f_flag
    return not flags & (os.ST_NOEXEC | os.ST_RDONLY)


@pytest.fixture(autouse=True)
def leaks_nothing() -> Iterator[None]:
    """No test may leave a descriptor or a child process behind.

    What a server's thread has yet to close after its client went is given a moment.
    """
    before = _descriptors(), _children()
    yield
    deadline = time.monotonic() + GRACE_SECONDS
    while (after := (_descriptors(), _children())) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert after == before


def _descriptors() -> dict[str, str]:
    links = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            links[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # This is the descriptor that the listing itself used.
    return links


def _children() -> set[str]:
    found: set[str] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # A thread that was joined may go.
            found.update(children.read_text().split())
    return found
