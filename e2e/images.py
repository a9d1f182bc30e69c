"""The lab's root filesystems: Debian, built once and kept by content.

One run of mmdebstrap makes three, each growing out of the one before: the machine (systemd and
dbus), the host (with machined and nspawn), the world (with Python). They are imported into the
engine under a tag that is a digest of everything they are made from, so that a warm start costs one
question to the engine. What the lab adds of its own (units, scripts, certificates) is not in them:
it is copied in at boot, and changing it rebuilds nothing.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.engine import Engine, LabUnavailableError

MACHINE_TREE = "./var/lib/machines/kube1"
BUILD_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the root filesystems hold; each list adds to the one before."""

    suite: str = "bookworm"
    machine: tuple[str, ...] = ("systemd", "systemd-sysv", "dbus")
    host: tuple[str, ...] = ("systemd-container", "iproute2", "procps")
    world: tuple[str, ...] = ("python3-minimal", "python3-cryptography")

    @property
    def key(self) -> str:
        """The digest of the packages and of every command that makes the trees from them."""
        text = "\0".join(build_command(self, Path("/target")))
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The tags of the images in an engine."""

    host: str
    world: str


def ensure_images(
    engine: Engine, recipe: Recipe, cache: Path, on_progress: Callable[[str], None]
) -> Images:
    """Return images made from `recipe`, building what the engine or the cache lacks.

    Raises LabUnavailableError. Two runs at once wait for each other and build once.
    """
    images = Images(
        host=f"hostsync-lab-host:{recipe.key}", world=f"hostsync-lab-world:{recipe.key}"
    )
    missing = [tag for tag in (images.host, images.world) if not _has(engine, tag)]
    if not missing:
        return images
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree = _ensure_tarballs(recipe, cache / "rootfs" / recipe.key, on_progress)
        for tag, name in ((images.host, "host.tar"), (images.world, "world.tar")):
            if not _has(engine, tag):
                on_progress(f"importing {tag}")
                engine.docker("import", str(tree / name), tag, timeout=BUILD_SECONDS)
    return images


def _has(engine: Engine, tag: str) -> bool:
    return engine.docker("image", "inspect", tag, check=False).returncode == 0


def _ensure_tarballs(recipe: Recipe, wanted: Path, on_progress: Callable[[str], None]) -> Path:
    """Return the directory with host.tar and world.tar; it appears whole or not at all."""
    if wanted.is_dir():
        return wanted
    if not shutil.which("mmdebstrap"):
        raise LabUnavailableError("no mmdebstrap: install mmdebstrap")
    wanted.parent.mkdir(parents=True, exist_ok=True)
    on_progress(f"building Debian {recipe.suite} for the lab, about a minute")
    with tempfile.TemporaryDirectory(prefix=f".{wanted.name}.", dir=wanted.parent) as scratch:
        draft = Path(scratch) / "draft"
        draft.mkdir()
        _build(recipe, draft, wanted.with_suffix(".log"))
        draft.replace(wanted)
    return wanted


def _build(recipe: Recipe, draft: Path, log: Path) -> None:
    with log.open("wb") as output:
        done = subprocess.run(
            [*build_command(recipe, draft), *own_sources(recipe.suite)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=BUILD_SECONDS,
        )
    if done.returncode:
        raise LabUnavailableError(f"mmdebstrap failed, see {log}")
    # The machine's tree already carries the path it has on the host.
    subprocess.run(
        ["tar", "--concatenate", f"--file={draft}/host.tar", f"{draft}/machine.tar"], check=True
    )
    (draft / "machine.tar").unlink()


def build_command(recipe: Recipe, target: Path) -> list[str]:
    """Return the command that leaves machine.tar, host.tar and world.tar in `target`.

    Packages are added by the apt *inside* the new tree: it can reach nothing outside it.
    """
    add = 'chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet'
    add += " --no-install-recommends "
    return [
        "mmdebstrap",
        "--variant=minbase",
        # The tree is thrown away if anything fails, so nothing in it needs to be synced.
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
        f"--include={','.join(recipe.machine)}",
        f"--customize-hook={_snapshot(target / 'machine.tar', MACHINE_TREE)}",
        f"--customize-hook={add}{' '.join(recipe.host)}",
        f"--customize-hook={_snapshot(target / 'host.tar', '.')}",
        f"--customize-hook={add}{' '.join(recipe.world)}",
        f"--customize-hook={_snapshot(target / 'world.tar', '.')}",
        "--format=null",
        recipe.suite,
        # No archive of the whole tree: the snapshots are what is wanted.
        "-",
    ]


def _snapshot(archive: Path, place: str) -> str:
    """Return the shell command that saves the tree in "$1" under the path `place`.

    While mmdebstrap works there is a policy-rc.d, and the real start-stop-daemon is set aside.
    """
    left_out = ["dev", "proc", "sys", "run", "tmp", "var/cache/apt/*", "var/lib/apt/lists/*"]
    left_out += ["usr/sbin/policy-rc.d", "usr/sbin/start-stop-daemon"]
    excluded = " ".join(f"--exclude='./{path}'" for path in left_out)
    return (
        f"tar --create --file='{archive}' --directory=\"$1\" --numeric-owner --xattrs "
        f"--xattrs-include='*' --anchored {excluded} "
        f"--transform='s,start-stop-daemon\\.REAL$,start-stop-daemon,;s,^\\.,{place},S' ."
    )


def own_sources(suite: str) -> list[str]:
    """Return this machine's own apt sources for `suite`; none leaves the choice to mmdebstrap."""
    if not shutil.which("apt-get"):
        return []
    listed = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format=$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    rows = dict.fromkeys(tuple(line.split()) for line in listed.stdout.splitlines())
    return [
        f"deb {' '.join(row)}"
        for row in rows
        if len(row) == 3 and row[1] in wanted and row[2] == "main"
    ]
