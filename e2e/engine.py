"""A container engine to run the lab with: the one that is there, else one of our own.

Our own engine keeps its images in the cache, which makes the next boot warm. Several runs may share
it: each holds a shared lock while it uses the engine, and the last one out stops it. A run that was
killed leaves an engine behind, which the next run adopts and stops.

Facts that shaped this: `dockerd` (20.10 and later) runs without bridges and packet filters, which
the lab does not need; it leaves `netns/default` mounted beneath its exec root when it stops, its
data root mounted on itself, and a `docker` directory in each cgroup hierarchy.
"""

import fcntl
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from e2e import disk

DEFAULT_SOCKET = Path("/var/run/docker.sock")
START_SECONDS = 120.0
STOP_SECONDS = 60.0


class LabUnavailableError(Exception):
    """This machine cannot run the lab; the text says what is missing and how to get it."""


class EngineError(Exception):
    """The engine did not do what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """The compose command found, and whether it is of the 2.x family."""

    command: tuple[str, ...]
    is_v2: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that answers at `host` (the value of DOCKER_HOST)."""

    host: str
    compose: Compose

    def docker(
        self, *args: str, check: bool = True, timeout: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run the docker client; raises CalledProcessError when it fails and `check` is set."""
        return subprocess.run(
            ["docker", "--host", self.host, *args],
            check=check,
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    def renew(self, container: str) -> str:
        """Put a new container that is made alike in the place of one, and return its id.

        Its volumes are new too, but for what is bound. What compose would do takes it a second of
        processor time. Raises EngineError when the engine refuses.
        """
        made = self._ask("GET", f"/containers/{container}/json")
        # Who shares another's network has the other's name, and may not ask for it.
        plan = {**made["Config"], "HostConfig": made["HostConfig"]}
        del plan["Hostname"]
        self._ask("DELETE", f"/containers/{container}?force=true&v=true")
        new = self._ask("POST", f"/containers/create?name={made['Name'].lstrip('/')}", plan)["Id"]
        self._ask("POST", f"/containers/{new}/start")
        return str(new)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = _Connection(self.host.removeprefix("unix://"))
        try:
            content = json.dumps(body) if body is not None else None
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise EngineError(f"the engine refused {method} {path}: {said.decode()}")
        return json.loads(said) if said else None


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket in the filesystem."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=300)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def running_engine(cache: Path) -> Iterator[Engine]:
    """Give an engine; raises LabUnavailableError. What this starts is gone when it ends."""
    _check_machine()
    compose = _find_compose()
    found = os.environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"
    if _answers(found):
        if not found.startswith("unix://"):
            raise LabUnavailableError(f"the engine at {found} is remote: the lab binds local files")
        yield Engine(host=found, compose=compose)
        return
    with _own_engine(cache / "engine") as host:
        yield Engine(host=host, compose=compose)


def _check_machine() -> None:
    if sys.platform != "linux":
        raise LabUnavailableError("the lab needs Linux")
    if os.geteuid() != 0:
        raise LabUnavailableError("the lab needs root")
    if not shutil.which("docker"):
        raise LabUnavailableError("no docker client: install docker.io")


def _find_compose() -> Compose:
    for command in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(command[0]):
            done = subprocess.run(
                [*command, "version", "--short"], check=False, capture_output=True, text=True
            )
            version = done.stdout.strip().lstrip("v")
            if done.returncode == 0 and version[:1].isdigit():
                return Compose(command=command, is_v2=not version.startswith("1."))
    raise LabUnavailableError("no compose: install docker-compose")


def _answers(host: str) -> bool:
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).exists():
        return False
    asked = subprocess.run(
        ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"],
        check=False,
        capture_output=True,
        timeout=START_SECONDS,
    )
    return asked.returncode == 0


@contextmanager
def _own_engine(home: Path) -> Iterator[str]:
    if not shutil.which("dockerd"):
        raise LabUnavailableError("no engine answers and there is no dockerd: install docker.io")
    home.mkdir(parents=True, exist_ok=True)
    host = f"unix://{home}/docker.sock"
    with (home / "users.lock").open("w") as users:
        with _starting(home):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not _answers(host):
                _start(home, host)
        try:
            yield host
        finally:
            with _starting(home):
                if _is_last(users):
                    _stop(home)


@contextmanager
def _starting(home: Path) -> Iterator[None]:
    """Let one run at a time start or stop the engine."""
    with (home / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(home: Path, host: str) -> None:
    for leftover in ("dockerd.pid", "docker.sock"):
        (home / leftover).unlink(missing_ok=True)
    command = [
        "dockerd",
        f"--data-root={disk.attach(home)}",
        f"--exec-root={home}/exec",
        f"--host={host}",
        f"--pidfile={home}/dockerd.pid",
        "--iptables=false",
        "--ip6tables=false",
        "--bridge=none",
        "--default-cgroupns-mode=host",
    ]
    with (home / "dockerd.log").open("wb") as log:
        # In a session of its own: an interrupt at the terminal is for the tests, which then stop
        # the engine in order.
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while not _answers(host):
        if engine.poll() is not None or time.monotonic() > deadline:
            raise LabUnavailableError(f"dockerd did not start, see {home}/dockerd.log")
        time.sleep(0.05)
    # It outlives this object on purpose; `_stop` ends it by its pid.
    engine.returncode = 0


def _stop(home: Path) -> None:
    _end_process(int((home / "dockerd.pid").read_text()))
    for left in (f"{home}/exec/netns/default", f"{home}/data"):
        subprocess.run(["umount", left], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(home / "exec", ignore_errors=True)
    disk.detach(home)
    for hierarchy in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
        try:
            (hierarchy / "docker").rmdir()
        except OSError:
            continue


def _end_process(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], STOP_SECONDS)[0]:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], STOP_SECONDS)
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # An adopted engine: somebody else's child.
    finally:
        os.close(handle)
