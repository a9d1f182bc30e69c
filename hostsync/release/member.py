"""The members of a release and the rules that all of them keep, wherever they come from.

Names are printable ASCII without a backslash. That is more than the file systems ask, and on
purpose: it leaves no room for two spellings of one name, for text that hides in a terminal,
or for bytes that another program decodes otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from hostsync.release.flaw import Flaw, subject

MIB = 1024 * 1024
EXPANDED_LIMIT = 512 * MIB
"""A release has at most this many bytes, expanded."""
MEMBER_LIMIT = 20_000
"""A release has at most this many files and directories together."""
DEPTH_LIMIT = 32
"""Components of a path: one descriptor is open for each while a directory is walked."""
PATH_LIMIT = 1024

SEAL_NAME = "RELEASE"
"""The seal is written by the slot's keeper, last; no release brings its own."""

_PLAIN = re.compile(r"[ -\[\]-~]+")
_SPECIAL_BITS = 0o7000
_WORLD_WRITABLE = 0o002


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file or directory of a source, in the order the source gives it.

    `path` is relative to the release and empty when the release is one file; `mode` are the
    permission bits as found; `size` is in bytes. `content` can be read once, before the next
    member is asked for; it yields exactly `size` bytes or raises Flaw.
    """

    path: str
    is_directory: bool
    mode: int
    size: int
    content: Iterator[bytes]


def directory(path: str, mode: int = 0o755) -> Member:
    """A directory as a member."""
    return Member(path=path, is_directory=True, mode=mode, size=0, content=iter(()))


def check_path(path: str) -> None:
    """Raise Flaw unless `path` is relative, plain, and within the limits."""
    parts = path.split("/")
    if path and not _PLAIN.fullmatch(path):
        raise Flaw(f"{subject(path)} has a backslash or a character beyond printable ASCII")
    if any(part in {"", ".", ".."} for part in parts):
        raise Flaw(f"member {path[:PATH_LIMIT]!a} has an empty, '.' or '..' component")
    if len(path) > PATH_LIMIT:
        raise Flaw(f"{subject(path)} has a path of more than {PATH_LIMIT} bytes")
    if len(parts) > DEPTH_LIMIT:
        raise Flaw(f"{subject(path)} lies deeper than {DEPTH_LIMIT} directories")


def check_mode(path: str, mode: int) -> None:
    """Raise Flaw for permission bits that no release needs and an attacker would like."""
    if mode & ~0o777:
        bits = mode & _SPECIAL_BITS or mode
        raise Flaw(
            f"{subject(path)} has mode {mode:04o}: bits {bits:04o} are not allowed",
            remedy="clear setuid, setgid and sticky in the release: chmod -R ug-s,-t",
        )
    if mode & _WORLD_WRITABLE:
        raise Flaw(
            f"{subject(path)} has mode {mode:04o}: it is writable by everyone",
            remedy="clear that bit in the release: chmod -R o-w",
        )


def check_size(size: int, path: str = "") -> None:
    """Raise Flaw for a file of more bytes than a release may have in all."""
    if size > EXPANDED_LIMIT:
        raise Flaw(f"{subject(path)} exceeds the {EXPANDED_LIMIT // MIB} MiB of a release")


class Roll:
    """The members admitted so far, and the limits over all of them."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, bool]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._seen)

    def admit(self, path: str, *, is_directory: bool, size: int) -> tuple[str, ...]:
        """Enter a member; the directories above it that no member had named yet, outermost first.

        Raises Flaw for a second member of that name (whatever the case of its letters), for
        one beneath a file, and beyond the limits of members and bytes.
        """
        implied = self._implied(path.rpartition("/")[0])
        if known := self._seen.get(path.lower()):
            raise Flaw(f"{subject(path)} comes after {subject(known[0])}: one name, twice")
        self._enter(path, is_directory=is_directory)
        self._bytes += size
        if self._bytes > EXPANDED_LIMIT:
            raise Flaw(f"{subject(path)} exceeds the {EXPANDED_LIMIT // MIB} MiB of a release")
        return implied

    def _implied(self, parent: str) -> tuple[str, ...]:
        # A directory was only entered with all that are above it.
        if not parent or self._seen.get(parent.lower()) == (parent, True):
            return ()
        slashes = (at for at, letter in enumerate(f"{parent}/") if letter == "/")
        return tuple(above for at in slashes if self._is_new_parent(above := parent[:at]))

    def _is_new_parent(self, path: str) -> bool:
        known = self._seen.get(path.lower())
        if known is None:
            self._enter(path, is_directory=True)
            return True
        if known != (path, True):
            raise Flaw(f"{subject(path)} is needed as a directory, beside {subject(known[0])}")
        return False

    def _enter(self, path: str, *, is_directory: bool) -> None:
        self._seen[path.lower()] = (path, is_directory)
        if len(self._seen) > MEMBER_LIMIT:
            raise Flaw(f"{subject(path)} exceeds the {MEMBER_LIMIT} members of a release")
