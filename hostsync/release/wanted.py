"""What a slot takes: the agent, its kind, and the architecture of this host."""

from __future__ import annotations

import msgspec

from hostsync.errors import Reason
from hostsync.model import Arch, SlotKind
from hostsync.release.flaw import Flaw, subject


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The release that a slot of this agent on this host can hold."""

    agent: str
    kind: SlotKind
    arch: Arch

    @property
    def name(self) -> str:
        """The one member, or the one top directory, of its archive."""
        return f"{self.agent}-linux-{self.arch}"

    @property
    def entry(self) -> str:
        """The path within the release of what is run; empty when the release is one file."""
        return "" if self.kind is SlotKind.FILE else f"bin/{self.agent}"

    def place(self, name: str, *, is_directory: bool) -> str:
        """The path within the release of an archive's member; empty for the top itself.

        Raises Flaw when the archive of this release has no place for it.
        """
        top, slash, path = name.partition("/")
        if top != self.name and top in {f"{self.agent}-linux-{arch}" for arch in Arch}:
            raise wrong_arch(f"{subject(name)} is for another architecture", self.arch)
        is_one_file = self.kind is SlotKind.FILE
        if top != self.name or (is_one_file and slash):
            rule = "holds only" if is_one_file else "has everything beneath"
            raise Flaw(f"{subject(name)} is out of place: the archive {rule} {self.name!r}")
        if not path and is_directory is is_one_file:
            form = "a regular file" if is_one_file else "a directory"
            raise Flaw(f"{subject(name)} is not {form}")
        return path


def wrong_arch(why: str, arch: Arch) -> Flaw:
    """A flaw that tells which build would do."""
    remedy = f"use the build for linux-{arch}"
    return Flaw(why, remedy=remedy, reason=Reason.WRONG_ARCHITECTURE)
