"""A candidate: opened once, and unpacked in the same pass that judges it.

The path is followed once, when it is opened: it is what the operator typed, and may be a link.
All that comes after works on the opened descriptor, so another object put at the path changes
nothing. The object's own bytes may still be changed by whoever can write it. Bytes are therefore
hashed before any of them is parsed, and again as they are parsed; a directory is read in full
before it is read to be written. What is written is exactly what was judged, chunk by chunk, and is
read back in the end.

An archive is inflated once: it is unpacked to where nothing refers to it yet, and the decision
whether to go on is made from what was found in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from hostsync.errors import DiskError, Failed, Reason, Refused
from hostsync.model import Arch, Digest, Entry, SlotKind, tree_digest
from hostsync.ports import Fs
from hostsync.release.elf import host_arch
from hostsync.release.flaw import FETCH_AGAIN, KEEP_STILL, Flaw
from hostsync.release.inspection import Nowhere, Sink, inspect
from hostsync.release.member import EXPANDED_LIMIT
from hostsync.release.source import Form, Given, Opened, Source, open_source
from hostsync.release.tree import scan
from hostsync.release.unpacking import OnBytes, Room, Unpacking
from hostsync.release.wanted import Wanted

_CHANGED = "the source changed after it was inspected"


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate was found to be.

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
    """An open candidate whose bytes are those ordered; made by `open_candidate`.

    Nothing of it has been parsed yet. `inspect` and `unpack` do that, and raise Refused
    (bad-candidate, wrong-architecture), naming path, member, limit and remedy, where a rule is
    broken. The rules stand in `archive`, `tar_header`, `gzip_stream`, `member` and `inspection`.
    """

    def __init__(self, given: Given, source: Source, proven: _Proven) -> None:
        self._given = given
        self._source = source
        self._proven = proven
        self._entries: tuple[Entry, ...] | None = None
        self._inspected: Inspected | None = None

    @property
    def is_packed(self) -> bool:
        """Whether reading it costs much more than reading what it comes to."""
        return self._source.form is Form.ARCHIVE

    @property
    def room(self) -> int:
        """Bytes that suffice to unpack it if it is sound, as far as a glance can tell."""
        packed = self.is_packed
        return self._source.expanded_size() if packed else self.inspect().size

    def inspect(self) -> Inspected:
        """Read all of it, unless that was done before, and write nothing."""
        if self._inspected is None:
            with self._refused():
                self._read(Nowhere())
        return self._found

    def unpack(
        self,
        target: Path,
        fs: Fs,
        *,
        room: int = EXPANDED_LIMIT,
        on_bytes: OnBytes | None = None,
    ) -> Inspected:
        """Put the release at `target`, not yet durably, and say what it is.

        Raises Refused (in-the-way), leaving it alone, when something is at `target`; Refused
        (no-space) rather than write more than `room` bytes; Failed when the source is no longer
        what was inspected before; DiskError when the disk refuses. A failure removes what was put
        at `target`.
        """
        if os.path.lexists(target):
            brief, remedy = f"{target}: something is there already", "empty the slot first"
            raise Refused(Reason.IN_THE_WAY, brief, remedy=remedy)
        if not self.is_packed:
            self.inspect()
        with self._refused(), _removed_on_failure(target, fs), fs.draft(target) as draft:
            sink = Unpacking(draft, self._entries, Room(target, room), on_bytes or _ignore_bytes)
            if self._source.wanted.kind is SlotKind.BUNDLE:
                draft.make_directory("")
            self._read(sink)
        return self._found

    def secure(self, target: Path, fs: Fs) -> None:
        """Make what was unpacked at `target` durable, and prove that it is all there.

        It is read back while the disk is still writing. Raises Failed when it is not the same,
        DiskError when the disk refuses; then it is removed. The seal is not written here.
        """
        from concurrent.futures import ThreadPoolExecutor  # It brings logging with it.

        with _removed_on_failure(target, fs), ThreadPoolExecutor(1) as beside:
            flushed = beside.submit(fs.flush, target)
            self._verify(target)
            flushed.result()

    def stage(self, target: Path, fs: Fs) -> Inspected:
        """Both in one: `unpack`, then `secure`."""
        inspected = self.unpack(target, fs)
        self.secure(target, fs)
        return inspected

    @property
    def _found(self) -> Inspected:
        if self._inspected is None:
            raise Failed(f"{self._given} was not read yet")
        return self._inspected

    def _read(self, sink: Sink) -> None:
        """Read all of it into `sink`, and keep what was found; raises Flaw."""
        has_bytes, total = self._source.form is not Form.DIRECTORY, sha256()
        with closing(self._source.members(total.update)) as members:
            entries = inspect(members, self._source.wanted, sink)
        content = tree_digest(entries)
        digest = Digest(total.hexdigest()) if has_bytes else content
        self._proven.check(digest)
        if self._entries is not None and entries != self._entries:
            raise Flaw(f"content is {content.short}, inspected was {self._found.content_digest}")
        self._entries = entries
        self._inspected = Inspected(
            form=self._source.form,
            source_digest=digest,
            content_digest=content,
            size=sum(entry.size for entry in entries),
            members=len(entries),
            arch=self._source.wanted.arch,
        )

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """A flaw is a refusal; one that an inspection did not see means that the source changed."""
        try:
            yield
        except Flaw as flaw:
            if self._entries is None:
                raise _refusal(self._given, flaw) from flaw
            brief = f"{self._given}: {flaw.why}: {_CHANGED}"
            raise Failed(brief, remedy=KEEP_STILL) from flaw

    def _verify(self, target: Path) -> None:
        installed = scan(target)
        if installed != tuple(sorted(self._entries or (), key=lambda entry: entry.path)):
            found, wanted = tree_digest(installed).short, self._found.content_digest.short
            brief = f"{self._given}: installed content is {found}, unpacked was {wanted}"
            raise Failed(brief, remedy="check the disk of the slots, and order again")


@contextmanager
def open_candidate(
    given: Given, *, agent: str, kind: SlotKind, expected: Digest | None = None
) -> Iterator[Candidate]:
    """Open a candidate for a slot of `agent`; what was opened is closed on leaving.

    It is a path, or an object that is open already and stays so. An archive or a plain file
    whose SHA-256 is not `expected` is refused before any of it is parsed; a directory when its
    content is read. Raises Refused (bad-candidate), naming path and remedy. Nothing is written.
    """
    wanted = Wanted(agent=agent, kind=kind, arch=host_arch())
    with open_source(given, wanted) as source:
        try:
            proven = _prove(given, source, expected)
        except Flaw as flaw:
            raise _refusal(given, flaw) from flaw
        yield Candidate(given, source, proven)


class _Proven(msgspec.Struct, frozen=True, kw_only=True):
    """The digests that another reading of the source has to have: as `ordered`, as `seen`."""

    ordered: Digest | None = None
    seen: Digest | None = None

    def check(self, found: Digest) -> None:
        """Raise Flaw unless they agree."""
        if found != (self.ordered or found):
            brief = f"its SHA-256 is {found}, ordered was {self.ordered}"
            raise Flaw(brief, remedy=FETCH_AGAIN)
        if found != (self.seen or found):
            raise Flaw("it has other bytes than before", remedy=KEEP_STILL)


def _prove(given: Given, source: Source, expected: Digest | None) -> _Proven:
    if isinstance(given, Opened) and given.digest is not None:
        # Its bytes were seen to have this digest before they came here.
        _Proven(ordered=expected).check(given.digest)
        return _Proven(ordered=given.digest)
    if source.form is Form.DIRECTORY:
        return _Proven(ordered=expected)
    seen = source.digest()
    proven = _Proven(ordered=expected, seen=seen)
    proven.check(seen)
    return proven


@contextmanager
def _removed_on_failure(target: Path, fs: Fs) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # The first error tells the cause; one of the removal would only hide it, and a slot
        # without a seal counts as empty.
        with suppress(DiskError):
            fs.remove(target)
        raise


def _refusal(given: Given, flaw: Flaw) -> Refused:
    return Refused(flaw.reason, f"{given}: {flaw.why}", remedy=flaw.remedy)


def _ignore_bytes(_done: int) -> None:
    """Show no progress."""
