"""Booting a lab outside pytest; the fixtures in conftest.py do the same through pytest-docker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_docker.plugin import get_docker_services

from e2e.ground import CLEANUP, SETUP, prepared_ground
from e2e.lab import Lab


@contextmanager
def boot_lab(
    *,
    cache: Path | None = None,
    suite: str = "bookworm",
    on_progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Lab]:
    """Give a booted lab and leave nothing of it; raises LabUnavailableError, LabBrokenError."""
    with (
        prepared_ground(cache=cache, suite=suite, on_progress=on_progress) as ground,
        get_docker_services(
            ground.compose_command, ground.compose_files, ground.project, SETUP, CLEANUP
        ),
    ):
        on_progress("waiting for the host")
        lab = Lab(ground)
        lab.wait_ready()
        on_progress(f"ready after {lab.boot_seconds:.1f} s")
        yield lab
