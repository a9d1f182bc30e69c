"""The nouns of hostsync as values: parsed once at the edge, then only passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Self

import msgspec

SEAL_LIMIT = 4096
"""A seal longer than this many bytes is not a seal."""

_HEX64 = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
_SEAL_KEYS = ("agent", "version", "sha256", "protocol")


class SlotName(StrEnum):
    """One of the two places a release can live in."""

    BLUE = "blue"
    GREEN = "green"

    @property
    def other(self) -> SlotName:
        """The slot that is not this one."""
        return SlotName.GREEN if self is SlotName.BLUE else SlotName.BLUE


class SlotKind(StrEnum):
    """What a slot holds: a release directory, or one executable file."""

    BUNDLE = "bundle"
    FILE = "file"


class Arch(StrEnum):
    """Architectures hostsync is released for, by their name in archives."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class Digest(msgspec.Struct, frozen=True):
    """A SHA-256 as 64 lower-case hexadecimal digits."""

    hex: str

    def __post_init__(self) -> None:
        if not _HEX64.fullmatch(self.hex):
            raise ValueError(f"not a SHA-256 digest (64 lower-case hex digits): {self.hex!r:.80}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a digest as people write it: any case, optional `sha256:` before it.

        Raises ValueError when it is not 64 hexadecimal digits.
        """
        return cls(text.strip().removeprefix("sha256:").lower())

    @property
    def short(self) -> str:
        """The first 12 digits: enough to tell releases apart in a log line."""
        return self.hex[:12]

    def __str__(self) -> str:
        return self.hex


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The validity mark of a slot: which agent and release the slot holds, and its digest.

    `sha256` is of the installed content, see `tree_digest`. The bytes are canonical: two
    seals mean the same exactly when their bytes are equal.
    """

    agent: str
    version: str
    sha256: Digest
    protocol: int

    def to_bytes(self) -> bytes:
        """The canonical bytes: four `key=value` lines, `agent` first."""
        return (
            f"agent={self.agent}\nversion={self.version}\n"
            f"sha256={self.sha256}\nprotocol={self.protocol}\n"
        ).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a seal; raises ValueError for anything but canonical bytes."""
        if len(data) > SEAL_LIMIT:
            raise ValueError(f"a seal has at most {SEAL_LIMIT} bytes, this has {len(data)}")
        pairs = [line.split("=", 1) for line in data.decode("ascii").splitlines()]
        if [pair[0] for pair in pairs] != list(_SEAL_KEYS) or any(len(p) != 2 for p in pairs):
            raise ValueError(f"a seal has the lines {', '.join(_SEAL_KEYS)}, in this order")
        agent, version, digest, protocol = (pair[1] for pair in pairs)
        if not _WORD.fullmatch(agent) or not _WORD.fullmatch(version) or not protocol.isdigit():
            raise ValueError("a seal's agent and version are words, its protocol a number")
        seal = cls(agent=agent, version=version, sha256=Digest(digest), protocol=int(protocol))
        if seal.to_bytes() != data:
            raise ValueError("the seal's bytes are not canonical")
        return seal


def is_version(text: str) -> bool:
    """Whether `text` can stand as a version in a seal, a path and a status line."""
    return bool(_WORD.fullmatch(text))


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a release: a file or a directory beneath its top.

    `path` is relative, with `/`, and empty for a single file. `mode` are the permission bits,
    `size` is in bytes, `sha256` is of a file's content and empty for a directory.
    """

    path: str
    is_directory: bool
    mode: int
    size: int
    sha256: str


def tree_digest(entries: Iterable[Entry]) -> Digest:
    """The digest of a release's installed content, whatever order the entries come in.

    A single file has the SHA-256 of its bytes. A tree has the SHA-256 over one line per entry,
    sorted by path: kind, octal mode, content digest and path. Names with a newline cannot
    occur: intake refuses them. The seal at the top of a tree is not part of its content.
    """
    listed = sorted((e for e in entries if e.path != "RELEASE"), key=lambda e: e.path)
    if len(listed) == 1 and listed[0].path == "":
        return Digest(listed[0].sha256)
    total = sha256()
    for e in listed:
        kind = "d" if e.is_directory else "f"
        total.update(f"{kind} {e.mode:04o} {e.sha256 or '-'} {e.path}\n".encode())
    return Digest(total.hexdigest())
