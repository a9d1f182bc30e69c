"""Where one agent's slots, links, seals and leftovers stand: paths only, no I/O."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hostsync.model import SlotKind, SlotName

SEAL_NAME = "RELEASE"
WANTED_NAME = "WANTED"
STAGING_PREFIX = ".hostsync-staging-"
EVICTED_PREFIX = ".hostsync-evicted-"
TRASH_PREFIX = ".hostsync-trash-"
TEMPORARY_PREFIX = ".hostsync-tmp-"
"""Every temporary file starts so, in the directory of the file it will become."""
CREDENTIAL_INSIDE = Path("/var/lib/hostsync/credential")
"""Where the plugin in a machine looks for the credential that its host shares."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The names beneath one slot root.

    `prefix` stands before blue, green, current and last-good (`aks-flex-node-`); `entry` is
    the program within a release directory, empty where the slot is the program itself.
    """

    root: Path
    kind: SlotKind
    prefix: str = ""
    entry: str = ""

    def slot(self, name: SlotName) -> Path:
        """The path of a slot's content."""
        return self.root / f"{self.prefix}{name}"

    def slot_of(self, link_target: str) -> SlotName | None:
        """The slot that a link target names, None for any other text.

        Links of hostsync are relative; a path in full is how other installers lay them.
        """
        for name in SlotName:
            if link_target in (f"{self.prefix}{name}", str(self.slot(name))):
                return name
        return None

    @property
    def current(self) -> Path:
        """The link to the release in use."""
        return self.root / f"{self.prefix}current"

    @property
    def last_good(self) -> Path:
        """The link to the release to fall back on."""
        return self.root / f"{self.prefix}last-good"

    def staging(self, order: str) -> Path:
        """Where the candidate of an order is staged, on the slots' own filesystem."""
        return self.root / f"{STAGING_PREFIX}{order}"

    def evicted(self, order: str) -> Path:
        """Where the release that the candidate displaces waits for the verdict."""
        return self.root / f"{EVICTED_PREFIX}{order}"

    def trash(self, order: str) -> Path:
        """Where a release is moved to before it is deleted, so that no slot is half there."""
        return self.root / f"{TRASH_PREFIX}{order}"

    def seal(self, content: Path) -> Path:
        """The seal that belongs to a slot's content."""
        if self.kind is SlotKind.BUNDLE:
            return content / SEAL_NAME
        return content.with_name(f"{content.name}.{SEAL_NAME}")

    def parts(self, content: Path) -> tuple[Path, ...]:
        """The paths that make up a slot, content first: they move together, seal last."""
        if self.kind is SlotKind.BUNDLE:
            return (content,)
        return (content, self.seal(content))

    def program(self, content: Path, command: str | None = None) -> Path:
        """The executable of a slot's content: its entry, or another command beside it."""
        inner = self.entry if command is None else command
        return content / inner if inner else content


def relative_target(link: Path, target: Path) -> str:
    """The relative text for a link at `link` that leads to `target`.

    Relative links mean the same on the host and inside a machine.
    """
    return os.path.relpath(target, link.parent)
