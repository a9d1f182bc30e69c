"""The links of a slot root, and the compatibility paths that lead into it."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

import msgspec

from hostsync.config import Command
from hostsync.layout import Layout, relative_target
from hostsync.model import SlotName
from hostsync.slots import describe_mode


class LinkCondition(StrEnum):
    """What stands where a link belongs."""

    ABSENT = "absent"
    LINK = "link"
    FILE = "file"
    IN_THE_WAY = "in-the-way"


class LinkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A link as found; `slot` is the one it names, None for any other target."""

    path: Path
    condition: LinkCondition
    target: str = ""
    slot: SlotName | None = None
    detail: str = ""


def observe(layout: Layout, path: Path) -> LinkFacts:
    """Say what stands at a link's path; nothing is followed."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return LinkFacts(path=path, condition=LinkCondition.ABSENT)
    if stat.S_ISLNK(mode):
        target = os.readlink(path)
        slot = layout.slot_of(target)
        return LinkFacts(path=path, condition=LinkCondition.LINK, target=target, slot=slot)
    if stat.S_ISREG(mode):
        return LinkFacts(path=path, condition=LinkCondition.FILE, detail="a regular file")
    detail = f"a {describe_mode(mode)} stands there"
    return LinkFacts(path=path, condition=LinkCondition.IN_THE_WAY, detail=detail)


def command_target(layout: Layout, command: Command) -> str:
    """The relative text of a compatibility link: through `current`, so it never changes."""
    return relative_target(command.path, layout.program(layout.current, command.inner))
