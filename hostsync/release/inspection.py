"""What members amount to as an installed release, told while they are handed on to be written.

Modes are set here once for all: 0755 for directories and what is executed, 0644 for the rest,
so a release installed from an archive, from its unpacked directory or under any umask is the
same release, with the same digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Protocol

from hostsync.model import Entry
from hostsync.release.elf import HEADER_BYTES, read_arch
from hostsync.release.flaw import REBUILD, Flaw, subject
from hostsync.release.member import Member, check_mode
from hostsync.release.wanted import Wanted, wrong_arch

_EXECUTABLE_MODE, _PLAIN_MODE = 0o755, 0o644
_OWNER_EXECUTES = 0o100


class Sink(Protocol):
    """Takes members one by one, each after its name and mode were judged."""

    def make_directory(self, path: str) -> None:
        """Take a directory."""

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        """Take a file, and read all of its content."""


class Nowhere:
    """A sink for those who only want to know."""

    def make_directory(self, path: str) -> None:
        """Do nothing."""

    def write(self, path: str, content: Iterable[bytes], mode: int) -> None:
        """Read the content."""
        del path, mode  # Nobody keeps it.
        for _ in content:
            pass


def inspect(members: Iterable[Member], wanted: Wanted, sink: Sink) -> tuple[Entry, ...]:
    """The entries that `sink` was given, in their order; the digests are of what it was given.

    Raises Flaw for an ELF file of another architecture, forbidden permission bits, or an entry
    point that is missing or that the kernel would not run; what the sink has taken until then is
    to be discarded. Raises what the sink raises.
    """
    entries = tuple(_passed_on(member, wanted, sink) for member in members)
    if wanted.entry not in {entry.path for entry in entries}:
        raise Flaw(f"{subject(wanted.entry)} is missing: it is what the service runs")
    return entries


class _Watched:
    """Content on its way: its first bytes and its digest."""

    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._total = sha256()
        self.head = b""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._content:
            if len(self.head) < HEADER_BYTES:
                self.head = (self.head + chunk[:HEADER_BYTES])[:HEADER_BYTES]
            self._total.update(chunk)
            yield chunk

    @property
    def digest(self) -> str:
        return self._total.hexdigest()


def _passed_on(member: Member, wanted: Wanted, sink: Sink) -> Entry:
    check_mode(member.path, member.mode)
    watched, mode = _Watched(member.content), _installed_mode(member)
    if member.is_directory:
        sink.make_directory(member.path)
    else:
        sink.write(member.path, watched, mode)
    _check_arch(member.path, watched.head, wanted)
    if member.path == wanted.entry:
        _check_entry(member, watched.head)
    return Entry(
        path=member.path,
        is_directory=member.is_directory,
        mode=mode,
        size=member.size,
        sha256="" if member.is_directory else watched.digest,
    )


def _installed_mode(member: Member) -> int:
    # A release of one file is there to be run, and often comes without the bit after a download.
    is_run = member.path == "" or member.mode & _OWNER_EXECUTES
    return _EXECUTABLE_MODE if member.is_directory or is_run else _PLAIN_MODE


def _check_arch(path: str, head: bytes, wanted: Wanted) -> None:
    try:
        arch = read_arch(head)
    except ValueError as error:
        raise wrong_arch(f"{subject(path)} is {error}", wanted.arch) from error
    if arch not in {None, wanted.arch}:
        raise wrong_arch(f"{subject(path)} is for {arch}, this host is {wanted.arch}", wanted.arch)


def _check_entry(member: Member, head: bytes) -> None:
    name = subject(member.path)
    if member.is_directory:
        raise Flaw(f"{name} is a directory; it must be the program that the service runs")
    if _installed_mode(member) != _EXECUTABLE_MODE:
        raise Flaw(f"{name} is not executable", remedy=f"chmod +x it, or {REBUILD}")
    if read_arch(head) is None and not head.startswith(b"#!"):
        what = "is empty" if not head else "is neither an ELF file nor a script with '#!'"
        raise Flaw(f"{name} {what}")
