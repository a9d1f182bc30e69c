"""A candidate: opened once, inspected, and staged from the same opened object.

The path is followed once, when it is opened: it is what the operator typed, and may be a link.
All that comes after works on the opened descriptor, so another object put at the path changes
nothing. The object's own bytes may still be changed by whoever can write it. What is
staged is therefore read back from the target and compared with what was inspected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hostsync.errors import DiskError, Failed, Reason, Refused
from hostsync.model import Arch, Digest, Entry, SlotKind, tree_digest
from hostsync.ports import Fs
from hostsync.release.elf import host_arch
from hostsync.release.flaw import FETCH_AGAIN, KEEP_STILL, Flaw, subject
from hostsync.release.inspection import inspect
from hostsync.release.member import Member
from hostsync.release.source import Form, Given, Opened, Source, open_source
from hostsync.release.tree import scan
from hostsync.release.wanted import Wanted

OnBytes = Callable[[int, int], None]
"""Told the bytes written so far and in all, after each chunk."""

_CHANGED = "the source changed after it was inspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What is known of a candidate before anything is written.

    `source_digest` is of the bytes at the path (of a directory: the content digest),
    `content_digest` of what installing gives (`model.tree_digest`). `size` are the bytes that
    will be installed, `members` the files and directories. `arch` is this host's: nothing else
    passes, and a script is for all.
    """

    form: Form
    source_digest: Digest
    content_digest: Digest
    size: int
    members: int
    arch: Arch


class Candidate:
    """An open candidate that passed inspection; made by `open_candidate`."""

    def __init__(
        self, given: Given, source: Source, inspected: Inspected, entries: tuple[Entry, ...]
    ) -> None:
        self.inspected = inspected
        self._given = given
        self._source = source
        self._entries = entries

    def stage(self, target: Path, fs: Fs, on_bytes: OnBytes | None = None) -> None:
        """Install the release at `target`, durably, and prove that it is the inspected one.

        Raises Refused (in-the-way), leaving it alone, when something is at `target`; Failed when
        the source has changed since inspection; DiskError when the disk refuses. A failure
        removes what was put at `target`. The seal is not written here.
        """
        if os.path.lexists(target):
            brief, remedy = f"{target}: something is there already", "empty the slot first"
            raise Refused(Reason.IN_THE_WAY, brief, remedy=remedy)
        try:
            self._write(target, fs, on_bytes or _ignore_bytes)
            fs.flush(target)
            self._verify(target)
        except BaseException:
            # The first error tells the cause; one of the removal would only hide it, and a slot
            # without a seal counts as empty.
            with suppress(DiskError):
                fs.remove(target)
            raise

    def _write(self, target: Path, fs: Fs, on_bytes: OnBytes) -> None:
        if self._source.wanted.kind is SlotKind.BUNDLE:
            fs.make_directory(target)
        expected, done = iter(self._entries), 0
        try:
            with closing(self._source.members(_ignore_chunk)) as members:
                for member in members:
                    entry = _same(member, next(expected, None))
                    if entry.is_directory:
                        fs.make_directory(target / entry.path)
                        continue
                    content = self._counted(member.content, done, on_bytes)
                    fs.write(target / entry.path, content, entry.mode, durable=False)
                    done += entry.size
        except Flaw as flaw:
            brief = f"{self._given}: {flaw.why}: {_CHANGED}"
            raise Failed(brief, remedy=KEEP_STILL) from flaw

    def _counted(self, content: Iterator[bytes], done: int, on_bytes: OnBytes) -> Iterator[bytes]:
        for chunk in content:
            yield chunk
            done += len(chunk)
            on_bytes(done, self.inspected.size)

    def _verify(self, target: Path) -> None:
        installed = scan(target)
        if installed != tuple(sorted(self._entries, key=lambda entry: entry.path)):
            found, wanted = tree_digest(installed).short, self.inspected.content_digest.short
            brief = f"{self._given}: installed content is {found}, inspected was {wanted}"
            raise Failed(f"{brief}: {_CHANGED}", remedy=KEEP_STILL)


@contextmanager
def open_candidate(
    given: Given, *, agent: str, kind: SlotKind, expected: Digest | None = None
) -> Iterator[Candidate]:
    """Open and inspect a candidate for a slot of `agent`; what was opened is closed on leaving.

    It is a path, or an object that is open already and stays so. An archive or a plain file
    whose SHA-256 is not `expected` is refused before any of it is parsed. Raises Refused
    (bad-candidate, wrong-architecture), naming path, member, limit and remedy. Nothing is
    written. The rules stand in `archive`, `tar_header`, `gzip_stream`, `member` and `inspection`.
    """
    wanted = Wanted(agent=agent, kind=kind, arch=host_arch())
    with open_source(given, wanted) as source:
        try:
            candidate = _inspected(given, source, expected)
        except Flaw as flaw:
            raise Refused(flaw.reason, f"{given}: {flaw.why}", remedy=flaw.remedy) from flaw
        yield candidate


def _inspected(given: Given, source: Source, expected: Digest | None) -> Candidate:
    has_bytes = source.form is not Form.DIRECTORY
    if isinstance(given, Opened) and given.digest is not None:
        # Its bytes were seen to have this digest before they came here.
        _check_digest(given.digest, expected or given.digest)
        expected = given.digest
    elif expected and has_bytes:
        _check_digest(source.digest(), expected)
    total = sha256()
    with closing(source.members(total.update)) as members:
        entries = inspect(members, source.wanted)
    content = tree_digest(entries)
    digest = Digest(total.hexdigest()) if has_bytes else content
    # Once more, over the very bytes that were parsed: they may have changed since the first look.
    _check_digest(digest, expected or digest)
    inspected = Inspected(
        form=source.form,
        source_digest=digest,
        content_digest=content,
        size=sum(entry.size for entry in entries),
        members=len(entries),
        arch=source.wanted.arch,
    )
    return Candidate(given, source, inspected, entries)


def _check_digest(found: Digest, expected: Digest) -> None:
    if found != expected:
        raise Flaw(f"its SHA-256 is {found}, ordered was {expected}", remedy=FETCH_AGAIN)


def _same(member: Member, entry: Entry | None) -> Entry:
    """The inspected entry that `member` still is; its content is compared after the writing."""
    seen = (member.path, member.is_directory, member.size)
    if entry is None or seen != (entry.path, entry.is_directory, entry.size):
        raise Flaw(f"{subject(member.path)} was not there, or was another")
    return entry


def _ignore_chunk(_chunk: bytes) -> None:
    """Take no digest: what was installed is read back instead."""


def _ignore_bytes(_done: int, _total: int) -> None:
    """Show no progress."""
