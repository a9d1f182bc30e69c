"""The opened object behind a candidate: recognised by content, read as members any number of times.

A directory may be a release that is installed: its seal is left out, being the slot's and not
the release's. All that directories and archives must keep alike is kept here and in `member`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from hostsync.errors import Reason, Refused
from hostsync.model import Digest, SlotKind
from hostsync.release.archive import read_archive
from hostsync.release.flaw import Flaw, Unreadable
from hostsync.release.gzip_stream import COMPRESSED_LIMIT, MAGIC, expanded_size
from hostsync.release.member import EXPANDED_LIMIT, MIB, SEAL_NAME, Member, Roll, check_size
from hostsync.release.tree import read_chunks, read_file, walk
from hostsync.release.wanted import Wanted

_LONG = MIB
"""Archives from so many bytes on are worth a thread."""

OnChunk = Callable[[bytes], None]


class Form(StrEnum):
    """What the path of a candidate turned out to be."""

    ARCHIVE = "archive"
    DIRECTORY = "directory"
    FILE = "file"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is open already; `label` names it in messages.

    `digest` is what its bytes were found to be before anything of them was parsed. They are
    compared once more as they are parsed, so it does not matter who else can write them.
    """

    fd: int
    label: str
    digest: Digest | None = None

    def __str__(self) -> str:
        return self.label


Given = Path | Opened
"""A candidate as it is handed in; its text names it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """An open archive, directory or file; `size` are its bytes when it was opened."""

    fd: int
    form: Form
    size: int
    wanted: Wanted

    def members(self, on_chunk: OnChunk) -> Generator[Member, None, None]:
        """The release's members from its start; close it when leaving early.

        `on_chunk` is given the source's own bytes, all of them once the members are through; of
        a directory none. Raises Flaw where a rule is broken.
        """
        match self.form:
            case Form.ARCHIVE:
                compressed = _tapped(read_chunks(self.fd, self.size), on_chunk)
                is_long = self.size >= _LONG
                with closing(read_archive(compressed, self.wanted, is_long=is_long)) as members:
                    yield from members
            case Form.FILE:
                member = read_file(self.fd)
                content = _tapped(member.content, on_chunk)
                size, mode = member.size, member.mode
                yield Member(path="", is_directory=False, mode=mode, size=size, content=content)
            case Form.DIRECTORY:
                with closing(walk(self.fd)) as members:
                    yield from _unsealed(members)

    def expanded_size(self) -> int:
        """The bytes an archive says it comes to, at most what a release may have.

        A sound archive says it truly; of any other it does not matter, for it is refused.
        """
        trailer = _read_at(self.fd, 4, max(self.size - 4, 0))
        return min(expanded_size(trailer), EXPANDED_LIMIT)

    def digest(self) -> Digest:
        """The SHA-256 of the bytes of an archive or file, none of which is interpreted."""
        total = sha256()
        for chunk in read_chunks(self.fd, self.size):
            total.update(chunk)
        return Digest(total.hexdigest())


@contextmanager
def open_source(given: Given, wanted: Wanted) -> Iterator[Source]:
    """Open what is at a path once, following it if it is a link; closed on leaving.

    What is open already stays open. Raises Refused (bad-candidate) when it cannot be opened or
    has no form that the slot takes.
    """
    if isinstance(given, Opened):
        yield _recognised_at(given, given.fd, wanted)
        return
    with open_path(given) as opened:
        yield _recognised_at(given, opened.fd, wanted)


@contextmanager
def open_path(path: Path) -> Iterator[Opened]:
    """Open `path` once, following it if it is a link, whatever it is; closed on leaving.

    Raises Refused (bad-candidate) when it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer that may never come.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or "not a path"
        remedy = "give the path of a release archive, an unpacked release or a program"
        brief = f"{path}: it cannot be opened: {cause}"
        raise Refused(Reason.BAD_CANDIDATE, brief, remedy=remedy) from error
    try:
        yield Opened(fd=fd, label=str(path))
    finally:
        os.close(fd)


def is_directory(opened: Opened) -> bool:
    """Whether it is a directory, which has no bytes of its own."""
    return stat.S_ISDIR(os.fstat(opened.fd).st_mode)


def read_opened(opened: Opened) -> Iterator[bytes]:
    """The bytes of a regular file from its start.

    Raises Flaw for anything else, for one that is larger than any release, and when it changes
    its size.
    """
    status = os.fstat(opened.fd)
    _check_regular(status)
    check_size(status.st_size)
    return read_chunks(opened.fd, status.st_size)


def _recognised_at(given: Given, fd: int, wanted: Wanted) -> Source:
    try:
        return _recognised(fd, wanted)
    except Flaw as flaw:
        raise Refused(flaw.reason, f"{given}: {flaw.why}", remedy=flaw.remedy) from flaw


def _recognised(fd: int, wanted: Wanted) -> Source:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        form = Form.DIRECTORY
    else:
        _check_regular(status)
        form = Form.ARCHIVE if _read_at(fd, len(MAGIC), 0) == MAGIC else Form.FILE
    if form is Form.ARCHIVE and status.st_size > COMPRESSED_LIMIT:
        raise Flaw(f"it exceeds {COMPRESSED_LIMIT // MIB} MiB compressed")
    if form is Form.FILE:
        check_size(status.st_size)
    _check_form(form, wanted)
    return Source(fd=fd, form=form, size=status.st_size, wanted=wanted)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Flaw("it is a device, FIFO or socket", remedy="give an archive, directory or file")


def _check_form(form: Form, wanted: Wanted) -> None:
    takes = Form.FILE if wanted.kind is SlotKind.FILE else Form.DIRECTORY
    if form not in {Form.ARCHIVE, takes}:
        why = f"it is a {form}, but a slot of {wanted.agent} holds a {takes}"
        remedy = f"give a {takes} or {wanted.name}.tar.gz"
        raise Flaw(why, remedy=remedy)


def _read_at(fd: int, size: int, offset: int) -> bytes:
    try:
        return os.pread(fd, size, offset)
    except OSError as error:
        raise Unreadable("", error) from error


def _tapped(chunks: Iterable[bytes], on_chunk: OnChunk) -> Iterator[bytes]:
    for chunk in chunks:
        on_chunk(chunk)
        yield chunk


def _unsealed(members: Iterable[Member]) -> Iterator[Member]:
    roll = Roll()
    for member in members:
        if member.path == SEAL_NAME and not member.is_directory:
            continue
        if member.path.upper() == SEAL_NAME:
            raise Flaw(f"{SEAL_NAME} is the name of the slot's seal, a file")
        roll.admit(member.path, is_directory=member.is_directory, size=member.size)
        yield member
