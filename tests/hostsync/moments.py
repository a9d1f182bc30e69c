"""Moments of a host, to go on from as if every process had been killed there.

A kill leaves what is on the disk and what is played, and nothing else: a copy of both right before
a change is what a kill before that change leaves, without the way there being gone again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from tests.hostsync.world import World, nothing


@dataclass(frozen=True, slots=True)
class Moment:
    """A host as it was: its files, in a place of their own, and what is played."""

    files: Path
    world: World
    running: Path | None
    """Where the file that runs was then; a copy has another inode, one that is gone has none."""

    def again(self) -> World:
        """The host as it was, where it was; once, for the files are moved there."""
        world, process = self.world, self.world.systemd.process
        shutil.rmtree(world.top)
        self.files.rename(world.top)
        if process is not None:
            identity = (0, 0) if self.running is None else _identity(self.running)
            world.systemd.process = replace(process, identity=identity)
        return world


def moments(world: World, kept: Path) -> list[Moment]:
    """A list to which the host as it is before each change is added from now on."""
    found: list[Moment] = []

    def keep() -> None:
        files = kept / str(len(found))
        _copy(world.top, files)
        then = deepcopy(world, {id(value): value for value in _lasting(world)})
        then.disk.before_each = nothing
        found.append(Moment(files, then, _running(world)))

    kept.mkdir()
    world.disk.before_each = keep
    return found


def _copy(old: Path, new: Path) -> None:
    """Directories, files and links with their modes; faster than shutil, and than to start cp."""
    new.mkdir()
    with os.scandir(old) as entries:
        for entry in entries:
            target, mode = new / entry.name, entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                _copy(old / entry.name, target)
            elif stat.S_ISLNK(mode):
                target.symlink_to(os.readlink(entry))
            else:
                target.write_bytes((old / entry.name).read_bytes())
                target.chmod(stat.S_IMODE(mode))
    new.chmod(stat.S_IMODE(old.stat().st_mode))


def _lasting(world: World) -> Iterator[object]:
    """What never changes, so that a copy may share it."""
    yield from (world.agent, world.policy, world.systemd.layout, world.machines.layout)
    yield from world.events
    yield from world.machines.workers.values()


def _running(world: World) -> Path | None:
    """Where the file of the running program is now; it may have been moved since its start."""
    process = world.systemd.process
    if process is None:
        return None
    places = (process.program, *world.layout.root.rglob("*"))
    return next((p for p in places if p.exists() and _identity(p) == process.identity), None)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
