"""The handle by which tests work with a booted lab."""

import io
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from e2e.entrance import Entrance, entrance
from e2e.ground import SERVICES, Ground, containers
from e2e.records import (
    Beat,
    CommandFailedError,
    Completed,
    Entry,
    Exchange,
    parse_beats,
    parse_exchanges,
)
from e2e.tail import first_line_that
from e2e.world.conduct import GOOD, Conduct, instruct
from e2e.world.depot import ADDRESS as DEPOT_ADDRESS
from e2e.world.depot import HOST as DEPOT_HOST
from e2e.world.persistence import OBJECTS

MACHINE = "kube1"
MACHINE_ROOT = f"/var/lib/machines/{MACHINE}"
BEATS = f"{MACHINE_ROOT}/var/log/kubelet-beats.jsonl"
# Times after which something is broken: far more than it takes on a slow and busy machine.
READY_SECONDS = 180.0
COMMAND_SECONDS = 300.0
BEAT_SECONDS = 90.0

# Waits inside the host, where each thing waited for is at hand.
_READY = f"""
until [ -S /run/dbus/system_bus_socket ]; do sleep 0.02; done
systemctl is-system-running --wait >/run/lab-state
until systemctl --machine={MACHINE} is-system-running --wait >>/run/lab-state 2>/dev/null
do
    grep -q degraded /run/lab-state && break
    sleep 0.02
done
for port in 169.254.169.254/80 127.0.0.1/443 127.0.0.1/6443; do
    until (: </dev/tcp/$port) 2>/dev/null; do sleep 0.02; done
done
paste --serial --delimiters=' ' /run/lab-state
rm /run/lab-state
"""


class LabBrokenError(Exception):
    """The lab did not come up; the text holds what the host said."""


class Lab:
    """A booted host with its machine kube1 and its world."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._ids: dict[str, str] = {}
        self._way: Entrance | None = None
        self.boot_seconds = 0.0

    def wait_ready(self, began: float | None = None) -> None:
        """Return once host, machine and world are up; raises LabBrokenError.

        `began` (monotonic; default: when the ground was prepared) is where `boot_seconds` starts.
        """
        done = self.host("bash", "-c", _READY, check=False, timeout=READY_SECONDS)
        if done.out.split() != ["running", "running"]:
            raise LabBrokenError(
                f"host and machine are {done.out!r} {done.err}\n{self._evidence()}"
            )
        self.boot_seconds = time.monotonic() - (self.ground.began if began is None else began)

    def host(
        self,
        *argv: str,
        check: bool = True,
        timeout: float = COMMAND_SECONDS,
        stdin: bytes | IO[bytes] = b"",
    ) -> Completed:
        """Run a command on the host; raises CommandFailedError if it fails and `check` is set.

        A command over its `timeout` (seconds) is killed on the host too and ends with 124.
        """
        # Who is outside cannot kill what runs inside, so the time limit lives inside.
        inside = ("timeout", "--kill-after=5", str(timeout), *argv)
        way = self._way_in()
        with tempfile.TemporaryFile() as spool:
            if isinstance(stdin, bytes):
                spool.write(stdin)
                spool.seek(0)
            ended = subprocess.run(
                [*way.words, *inside],
                check=False,
                env=way.environment,
                stdin=spool if isinstance(stdin, bytes) else stdin,
                capture_output=True,
                timeout=timeout + 60,
            )
        done = Completed(
            argv=argv,
            code=ended.returncode if ended.returncode >= 0 else 128 - ended.returncode,
            out=ended.stdout.decode(errors="replace"),
            err=ended.stderr.decode(errors="replace"),
        )
        if check and done.code:
            raise CommandFailedError(done)
        return done

    def host_script(
        self, text: str, *, check: bool = True, timeout: float = COMMAND_SECONDS
    ) -> Completed:
        """Run a shell script on the host, which stops at the first command that fails."""
        return self.host("bash", "-eu", stdin=text.encode(), check=check, timeout=timeout)

    def machine(
        self, *argv: str, check: bool = True, timeout: float = COMMAND_SECONDS
    ) -> Completed:
        """Run a command inside kube1, as a transient unit of its own systemd."""
        inside = ("systemd-run", f"--machine={MACHINE}", "--pipe", "--wait", "--quiet", "--collect")
        return self.host(*inside, "--", *argv, check=check, timeout=timeout)

    def copy_in(self, local: Path, remote: str) -> None:
        """Copy a file or a directory's content to exactly `remote` on the host, owned by root.

        Modes and links are kept. A path beneath MACHINE_ROOT puts it into the machine's tree.
        """
        with tempfile.TemporaryFile() as spool:
            with tarfile.open(fileobj=spool, mode="w") as archive:
                archive.add(local, arcname=remote.lstrip("/"), filter=_as_root)
            spool.seek(0)
            self.host("tar", "--extract", "--directory=/", stdin=spool)

    def write(self, remote: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file on the host, making its parent directories."""
        data = content.encode() if isinstance(content, str) else content
        entry = tarfile.TarInfo(remote.lstrip("/"))
        entry.size, entry.mode, entry.mtime = len(data), mode, int(time.time())
        spool = io.BytesIO()
        with tarfile.open(fileobj=spool, mode="w") as archive:
            archive.addfile(entry, io.BytesIO(data))
        self.host("tar", "--extract", "--directory=/", stdin=spool.getvalue())

    def read(self, path: str) -> str:
        """Return a file of the host as text; raises CommandFailedError where there is none."""
        return self.host("cat", path).out

    def beats(self) -> tuple[Beat, ...]:
        """Return what kubelet recorded so far, oldest first."""
        return parse_beats(self.host("cat", BEATS, check=False).out)

    def await_beat(
        self,
        condition: Callable[[Beat], bool] = lambda beat: beat.ok,
        *,
        timeout: float = BEAT_SECONDS,
    ) -> Beat:
        """Return the first beat from now on that meets `condition`; raises TimeoutError."""
        way = self._way_in()
        follow = ["timeout", str(timeout + 1), "tail", "--quiet", "--lines=0", "--follow=name"]
        follow += ["--retry", "--sleep-interval=0.1", BEATS]
        seen: list[Beat] = []

        def pick(line: str) -> Beat | None:
            seen.extend(parse_beats(line))
            return seen[-1] if condition(seen[-1]) else None

        try:
            return first_line_that([*way.words, *follow], pick, timeout, way.environment)
        except TimeoutError as error:
            raise TimeoutError(f"no such beat in {timeout} s, the last were {seen[-3:]}") from error

    def api_log(self) -> tuple[Exchange, ...]:
        """Return what the Kubernetes API server was asked, oldest first."""
        return self._log("kube")

    def imds_log(self) -> tuple[Exchange, ...]:
        """Return what the identity endpoint was asked, oldest first."""
        return self._log("imds")

    def entra_log(self) -> tuple[Exchange, ...]:
        """Return what Entra was asked, oldest first."""
        return self._log("entra")

    def journal(
        self, unit: str | None = None, since: float | None = None, *, in_machine: bool = False
    ) -> tuple[Entry, ...]:
        """Return entries of the host's journal or the machine's; `since` in epoch seconds."""
        command = ["journalctl", "--output=json", "--no-pager", "--quiet"]
        command += [f"--unit={unit}"] if unit else []
        command += [f"--since=@{since:.6f}"] if since is not None else []
        done = self.machine(*command) if in_machine else self.host(*command)
        return tuple(Entry.parse(line) for line in done.out.splitlines())

    def tell(self, service: str, conduct: Conduct = GOOD) -> None:
        """Have "imds", "entra", "depot" or "kube" behave so from its next request on."""
        instruct(self.ground.world / f"{service}.json", conduct)

    def publish(self, release: Path) -> str:
        """Put a release onto the world's depot and return its URL, which lacks a signature."""
        there = self.ground.world / "depot" / release.name
        if not there.exists():
            shutil.copyfile(release, there)
        return f"https://{DEPOT_HOST}:{DEPOT_ADDRESS[1]}/{release.name}"

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        if service not in self._ids:
            self._ids[service] = self.ground.container(service)
        return self._ids[service]

    def stop_service(self, service: str) -> None:
        """Kill "azure" or "kube": connections are refused until it is started again."""
        self.ground.engine.docker("kill", self.container(service))

    def start_service(self, service: str) -> None:
        """Start a killed service again; the API server has the objects that the killed one had.

        Like a real one it has forgotten how they changed: a watch from before gets 410.
        """
        self.ground.engine.docker("start", self.container(service))

    def power_cut(self) -> None:
        """Kill everything on the host at once and boot it again; the world goes on meanwhile.

        What was written stays, synced or not: the kernel below keeps its page cache. /run and /tmp
        are empty afterwards. The kernel's boot id is that of the machine below and does not change.
        """
        began = time.monotonic()
        self.ground.engine.docker("kill", self.container("host"))
        self.ground.engine.docker("start", self.container("host"))
        self._way = None
        self.wait_ready(began)

    def reset(self) -> None:
        """Put a fresh host and a fresh world in the place of the used ones, with the same keys."""
        began = time.monotonic()
        engine = self.ground.engine
        services = [self.container("azure"), self.container("kube")]
        engine.docker("kill", *services, self.container("host"), check=False)
        self._way = None
        for leftover in (*self.ground.world.glob("*.jsonl"), *self.ground.world.glob("*.json")):
            leftover.unlink()
        shutil.rmtree(self.ground.world / OBJECTS, ignore_errors=True)
        engine.docker("start", *services)
        self._ids["host"] = engine.renew(self.container("host"))
        self.wait_ready(began)

    def _way_in(self) -> Entrance:
        if self._way is None:
            self._way = entrance(self.ground.engine, self.container("host"))
        return self._way

    def _log(self, service: str) -> tuple[Exchange, ...]:
        path = self.ground.world / f"{service}.jsonl"
        return parse_exchanges(path.read_text()) if path.exists() else ()

    def _evidence(self) -> str:
        engine = self.ground.engine
        said = [
            f"--- {service}\n{logs.stdout}{logs.stderr}"
            for service in SERVICES
            for each in containers(engine, self.ground.project, service)
            for logs in [engine.docker("logs", "--tail=30", each, check=False)]
        ]
        tail = self.host("journalctl", "--lines=40", "--no-pager", check=False)
        return "\n".join([*said, "--- journal", tail.out + tail.err])


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
