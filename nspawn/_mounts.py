"""The mount table of a process, parsed from /proc/PID/mountinfo (see proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One line: `point` is where it is mounted, relative to the root of the process."""

    id: int
    parent: int
    point: str
    read_only: bool


def parse(table: bytes) -> dict[int, Mount]:
    """All mounts by their id."""
    mounts = (_mount(line) for line in table.split(b"\n") if line)
    return {mount.id: mount for mount in mounts}


def depth(mounts: Mapping[int, Mount], mount: Mount) -> int:
    """How many mounts lie on top of each other where `mount`, the topmost, is mounted."""
    # Each layer of a stack is mounted on the root of the one below. A mount elsewhere that is
    # merely hidden can have the same path, but is not reached over the parents.
    count = 1
    while (below := mounts.get(mount.parent)) and below.point == mount.point and below != mount:
        mount, count = below, count + 1
    return count


def _mount(line: bytes) -> Mount:
    fields, _, filesystem = line.partition(b" - ")
    identity, parent, _, _, point, options = fields.split(b" ")[:6]
    on_filesystem = filesystem.split(b" ")[2].split(b",")
    return Mount(
        id=int(identity),
        parent=int(parent),
        point=os.fsdecode(_OCTAL.sub(_unescaped, point)),
        read_only=b"ro" in options.split(b",") or b"ro" in on_filesystem,
    )


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 8),))
