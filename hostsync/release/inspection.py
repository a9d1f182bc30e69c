"""What members amount to as an installed release: pure, given the members.

Modes are set here once for all: 0755 for directories and what is executed, 0644 for the rest,
so a release installed from an archive, from its unpacked directory or under any umask is the
same release, with the same digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from hostsync.model import Entry
from hostsync.release.elf import HEADER_BYTES, read_arch
from hostsync.release.flaw import REBUILD, Flaw, subject
from hostsync.release.member import Member, check_mode
from hostsync.release.wanted import Wanted, wrong_arch

_EXECUTABLE_MODE, _PLAIN_MODE = 0o755, 0o644
_OWNER_EXECUTES = 0o100


def inspect(members: Iterable[Member], wanted: Wanted) -> tuple[Entry, ...]:
    """The entries that installing `members` would give, in their order.

    Raises Flaw for an ELF file of another architecture, forbidden permission bits, or an entry
    point that is missing or that the kernel would not run.
    """
    entries = tuple(_examined(member, wanted) for member in members)
    if wanted.entry not in {entry.path for entry in entries}:
        raise Flaw(f"{subject(wanted.entry)} is missing: it is what the service runs")
    return entries


def _examined(member: Member, wanted: Wanted) -> Entry:
    check_mode(member.path, member.mode)
    head, total = b"", sha256()
    for chunk in member.content:
        head = (head + chunk[:HEADER_BYTES])[:HEADER_BYTES]
        total.update(chunk)
    _check_arch(member.path, head, wanted)
    if member.path == wanted.entry:
        _check_entry(member, head)
    return Entry(
        path=member.path,
        is_directory=member.is_directory,
        mode=_installed_mode(member),
        size=member.size,
        sha256="" if member.is_directory else total.hexdigest(),
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
