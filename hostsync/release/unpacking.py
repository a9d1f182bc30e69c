"""Where members go that are to be installed: into a draft, within its room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from hostsync.errors import Reason, Refused
from hostsync.model import Entry
from hostsync.ports import Draft
from hostsync.release.flaw import Flaw, subject
from hostsync.release.member import MIB

OnBytes = Callable[[int], None]
"""Told the bytes written so far, after each chunk."""


class Room(msgspec.Struct, frozen=True):
    """As many bytes as may be written at `target`."""

    target: Path
    size: int

    def check(self, done: int) -> None:
        """Raise Refused (no-space) when `done` bytes are more."""
        if done > self.size:
            brief = f"{self.target.parent}: the release needs more than the {self.size // MIB} MiB"
            remedy = "free space there and order again"
            raise Refused(Reason.NO_SPACE, f"{brief} that it may have there", remedy=remedy)


class Unpacking:
    """A sink that writes a draft, within its room, and nothing that was not `known` before."""

    def __init__(
        self, draft: Draft, known: tuple[Entry, ...] | None, room: Room, on_bytes: OnBytes
    ) -> None:
        self._draft = draft
        self._known = None if known is None else iter(known)
        self._room = room
        self._on_bytes = on_bytes
        self._done = 0

    def make_directory(self, path: str) -> None:
        """See `inspection.Sink`; raises Flaw for one that was not known, DiskError."""
        self._check_known(path)
        self._draft.make_directory(path)

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        """The same, and raises Refused (no-space) where the room ends."""
        self._check_known(path)
        self._draft.write(path, self._counted(content), mode)

    def _check_known(self, path: str) -> None:
        if self._known is not None:
            entry = next(self._known, None)
            if entry is None or entry.path != path:
                raise Flaw(f"{subject(path)} was not there")

    def _counted(self, content: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in content:
            self._room.check(self._done + len(chunk))
            yield chunk
            self._done += len(chunk)
            self._on_bytes(self._done)
