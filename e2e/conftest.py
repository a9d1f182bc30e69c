"""The lab as pytest fixtures, by way of pytest-docker."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pytest_docker.plugin import Services

from e2e.engine import LabUnavailableError
from e2e.ground import CLEANUP, SETUP, Ground, default_cache, prepared_ground
from e2e.lab import Lab
from e2e.releases import Releases

FIRST = ("test_lab", "test_upgrade", "test_machines", "test_credentials")


def pytest_configure() -> None:
    """Have a polite kill unwind the fixtures, as an interrupt does, in the background as well."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def announce(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Write a line to the terminal at once, whatever pytest captures.

    A worker of xdist writes to the standard error that all share: it has no terminal of its own.
    """
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    assert terminal is not None
    assert capture is not None

    def write(what: str) -> None:
        with capture.global_and_fixture_disabled():
            if worker:
                sys.stderr.write(f"\nlab {worker}: {what}\n")
            else:
                terminal.ensure_newline()
                terminal.write_line(f"lab: {what}")

    return write


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Look at the lab while it is new, before other tests install things in it; then what is long.

    Labs side by side take a file at a time in this order.
    """
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else 99)


@pytest.fixture(scope="session")
def lab_ground(announce: Callable[[str], None]) -> Iterator[Ground]:
    """Engine, images and keys; where this machine cannot, a skip, or in CI a failure."""
    with ExitStack() as stack:
        try:
            ground = stack.enter_context(prepared_ground(on_progress=announce))
        except LabUnavailableError as error:
            if os.environ.get("CI", "").lower() in ("1", "true"):
                raise
            pytest.skip(f"the lab is unavailable: {error}")
        yield ground


@pytest.fixture(scope="session")
def docker_compose_command(lab_ground: Ground) -> str:
    return lab_ground.compose_command


@pytest.fixture(scope="session")
def docker_compose_file(lab_ground: Ground) -> list[str]:
    return lab_ground.compose_files


@pytest.fixture(scope="session")
def docker_compose_project_name(lab_ground: Ground) -> str:
    return lab_ground.project


@pytest.fixture(scope="session")
def docker_setup() -> list[str]:
    # pytest-docker's own `up --build --wait` makes compose 1.29 print its usage and exit with 0.
    return SETUP


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    return CLEANUP


@pytest.fixture(scope="session")
def lab(lab_ground: Ground, docker_services: Services, announce: Callable[[str], None]) -> Lab:
    """A booted lab, one for the session; `lab.reset()` makes it new."""
    booted = Lab(lab_ground)
    booted.wait_ready()
    announce(f"ready after {booted.boot_seconds:.1f} s")
    return booted


@pytest.fixture(scope="session")
def releases() -> Releases:
    """The releases of hostsync that tests install."""
    return Releases(default_cache())
