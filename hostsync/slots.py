"""Slots: what is in them, and how their parts move so that no half slot counts as sealed.

A slot counts only with a valid seal beside complete content. On the way in the seal moves
last, on the way out first; each move is repeatable, so a killed one is simply done again.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from enum import StrEnum
from itertools import count
from pathlib import Path

import msgspec

from hostsync.errors import DiskError
from hostsync.layout import Layout
from hostsync.model import SEAL_LIMIT, Seal, SlotKind, tree_digest
from hostsync.ports import Fs
from hostsync.record import Record


class Condition(StrEnum):
    """What stands at a slot's path."""

    EMPTY = "empty"
    SEALED = "sealed"
    UNSEALED = "unsealed"
    IN_THE_WAY = "in-the-way"
    """Something that hostsync did not put there: another kind of file, or a link."""


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A slot as found: `inode` is (device, inode) of its content, None when empty."""

    path: Path
    condition: Condition
    seal: Seal | None = None
    inode: tuple[int, int] | None = None
    detail: str = ""

    @property
    def sealed(self) -> bool:
        """Whether the slot holds a release that may run."""
        return self.condition is Condition.SEALED


def observe(layout: Layout, content: Path) -> SlotFacts:
    """Say what stands at a slot's path; follows no link, reads only the seal."""
    try:
        status = content.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return SlotFacts(path=content, condition=Condition.EMPTY)
    expected = stat.S_ISDIR if layout.kind is SlotKind.BUNDLE else stat.S_ISREG
    inode = (status.st_dev, status.st_ino)
    if not expected(status.st_mode):
        detail = f"a {describe_mode(status.st_mode)} stands there"
        return SlotFacts(path=content, condition=Condition.IN_THE_WAY, inode=inode, detail=detail)
    data = read_small(layout.seal(content), SEAL_LIMIT + 1)
    if data is None:
        return SlotFacts(path=content, condition=Condition.UNSEALED, inode=inode, detail="no seal")
    try:
        seal = Seal.from_bytes(data)
    except ValueError as error:
        return SlotFacts(path=content, condition=Condition.UNSEALED, inode=inode, detail=str(error))
    return SlotFacts(path=content, condition=Condition.SEALED, seal=seal, inode=inode)


def intact(layout: Layout, content: Path) -> bool:
    """Whether a sealed slot's content still has the digest that its seal states.

    Reads the whole release (about 0.1 s for 50 MB).
    """
    from hostsync.release.tree import scan  # Neither the judge nor an idle daemon reads releases.

    facts = observe(layout, content)
    return facts.seal is not None and tree_digest(scan(content)) == facts.seal.sha256


def runnable(layout: Layout, content: Path) -> bool:
    """Whether a slot is sealed and its entry is an executable regular file."""
    program = layout.program(content)
    return (
        observe(layout, content).sealed
        and program.is_file()
        and not program.is_symlink()
        and os.access(program, os.X_OK)
    )


def install(fs: Fs, layout: Layout, old: Path, new: Path) -> None:
    """Move a slot's parts into place, the seal last; parts already moved are skipped."""
    _move(fs, tuple(zip(layout.parts(old), layout.parts(new), strict=True)))


def evict(fs: Fs, layout: Layout, old: Path, new: Path) -> None:
    """Move a slot's parts out of place, the seal first; parts already moved are skipped."""
    _move(fs, tuple(zip(layout.parts(old), layout.parts(new), strict=True))[::-1])


def restore(fs: Fs, layout: Layout, evicted: Path, record: Record) -> None:
    """Bring evicted parts back, over whatever took their place; repeatable at any point.

    A part that is not (or no longer) in `evicted` is in the slot already and stays. What made
    way lies in the trash, to be swept when there is time. A release directory changes places with
    the candidate at once: a plugin that was started from it and is still loading finds one.
    """
    slot, order = layout.slot(record.target_slot), record.order
    if layout.kind is SlotKind.BUNDLE and os.path.lexists(evicted) and os.path.lexists(slot):
        seal = observe(layout, evicted).seal
        # After a kill in between the two have changed places already.
        if seal is None or seal.sha256.hex != record.candidate.digest:
            with suppress(DiskError):  # not every filesystem can; then it is moved, as below
                fs.exchange(evicted, slot)
                seal = observe(layout, evicted).seal
        if seal is not None and seal.sha256.hex == record.candidate.digest:
            _drop(fs, layout, evicted, order)
    for kept, place in zip(layout.parts(evicted), layout.parts(slot), strict=True):
        if os.path.lexists(kept):
            _drop(fs, layout, place, order)
            fs.move(kept, place)


def discard(fs: Fs, layout: Layout, content: Path, order: str) -> None:
    """Take a slot out of its place at once, seal first, into the trash; idempotent."""
    for part in reversed(layout.parts(content)):
        _drop(fs, layout, part, order)


def read_small(path: Path, limit: int) -> bytes | None:
    """Up to `limit` bytes of a regular file, None when there is no such file.

    Never follows a link at the end of the path and never blocks on a FIFO.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return file.read(limit)


def describe_mode(mode: int) -> str:
    """What kind of file a mode means, in a word for messages."""
    for test, word in (
        (stat.S_ISDIR, "directory"),
        (stat.S_ISREG, "regular file"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    ):
        if test(mode):
            return word
    return "device"


def _move(fs: Fs, pairs: tuple[tuple[Path, Path], ...]) -> None:
    for old, new in pairs:
        if os.path.lexists(old):
            fs.move(old, new)


def _drop(fs: Fs, layout: Layout, path: Path, order: str) -> None:
    if os.path.lexists(path):
        name = f"{order}-{path.name.lstrip('.')}"
        places = (layout.trash(f"{name}-{number}") for number in count())
        fs.move(path, next(place for place in places if not os.path.lexists(place)))
