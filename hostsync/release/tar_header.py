"""One 512-byte tar header, read strictly; pure.

`tarfile` is not used, for three reasons. It is built to read what anybody ever wrote: it skips
damaged headers, takes the end of the file for the end of the archive, follows GNU and PAX
overrides, sparse maps and base-256 numbers; each of these has let two readers see different
members in the same bytes, and its extraction filters have been passed more than once (see
CVE-2025-4517 and those near it). What a release needs is two types and two fields. And a
strict reader can say exactly what it met, so that the refusal helps.

Accepted are POSIX ustar headers and GNU headers without GNU extensions, of regular files,
directories, and PAX headers that merely annotate (see `check_pax`). Offsets: POSIX.1-2017,
pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec

from hostsync.release.flaw import FETCH_AGAIN, Flaw, subject

BLOCK = 512
PAX_LIMIT = 4096
"""An annotating PAX header has at most this many bytes."""

_POSIX, _GNU = b"ustar\x0000", b"ustar  \x00"
_OCTAL = re.compile(rb" *([0-7]+)[ \0]*")
_OCTAL_OR_NONE = re.compile(rb" *[0-7]*[ \0]*")
_BASE_256 = (0x80, 0xFF)
_PAX_LENGTH = re.compile(rb"([1-9][0-9]{0,3}) ")
_PAX_IGNORED = {"atime", "ctime", "mtime", "uid", "gid", "uname", "gname"}
_REFUSED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"g": "a PAX header for all members",
    b"K": "a GNU long link name",
    b"L": "a GNU long name",
    b"S": "a GNU sparse file",
}


class Kind(Enum):
    """The types of tar members that a release can contain."""

    FILE = b"0"
    DIRECTORY = b"5"
    PAX = b"x"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a header says: the name (a directory's without its slash), permission bits, bytes."""

    kind: Kind
    name: str
    mode: int
    size: int


def parse_header(block: bytes) -> Header:
    """Read a header of `BLOCK` bytes; raises Flaw for all that is not plain (module docstring)."""
    magic = block[257:265]
    if magic not in {_POSIX, _GNU}:
        raise Flaw("it is no archive in ustar format, or is damaged", remedy=FETCH_AGAIN)
    unsigned = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _number(block[148:156], "checksum") != unsigned:
        raise Flaw("a header's checksum is wrong: the archive is damaged", remedy=FETCH_AGAIN)
    name = _name(block, is_posix=magic == _POSIX)
    kind = _kind(block[156:157], name)
    if kind is Kind.DIRECTORY:
        name = name.removesuffix("/")
    _check_unused(block)
    size = _number(block[124:136], "size")
    if size and kind is Kind.DIRECTORY:
        raise Flaw(f"{subject(name)} is a directory with content")
    if block[157:257].strip(b"\0") or block[500:].strip(b"\0"):
        raise Flaw(f"{subject(name)} has bytes in its header that belong to no plain member")
    return Header(kind=kind, name=name, mode=_number(block[100:108], "mode"), size=size)


def _kind(flag: bytes, name: str) -> Kind:
    try:
        return Kind(flag)
    except ValueError:
        what = _REFUSED_KINDS.get(flag, f"of the unknown type {flag!r}")
        brief = f"{subject(name)} is {what}; only regular files and directories are taken"
        raise Flaw(brief) from None


def _number(field: bytes, what: str) -> int:
    match = _OCTAL.fullmatch(field)
    if not match:
        raise Flaw(f"a header's {what} is not an octal number", remedy=FETCH_AGAIN)
    return int(match[1], 8)


def _check_unused(block: bytes) -> None:
    """Owner, time and device mean nothing here, but must be what other readers can read.

    `tarfile` takes a header with an unreadable number for the end of the archive.
    """
    for field in (block[108:116], block[116:124], block[136:148], block[329:337], block[337:345]):
        if field[0] not in _BASE_256 and not _OCTAL_OR_NONE.fullmatch(field):
            raise Flaw("a header's owner, time or device is no number", remedy=FETCH_AGAIN)


def _name(block: bytes, *, is_posix: bool) -> str:
    name, prefix = _text(block[:100]), _text(block[345:500])
    if prefix and not is_posix:
        # GNU tar keeps other things here, and readers disagree whether it belongs to the name.
        raise Flaw(f"{subject(name)} has GNU extensions in its header")
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise Flaw(f"{subject(text.decode('latin-1'))} has bytes hidden after a NUL in its name")
    # Latin-1 cannot fail and keeps every byte; the rule on names refuses what is not ASCII.
    return text.decode("latin-1")


def parse_pax(data: bytes) -> dict[str, str]:
    """The records of a PAX header; raises Flaw unless each is well-formed and its keyword new."""
    records: dict[str, str] = {}
    while data:
        match = _PAX_LENGTH.match(data)
        end = int(match[1]) if match else 0
        record = data[match.end() if match else 0 : end]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        name = key.decode("latin-1")
        if end > len(data) or not record.endswith(b"\n") or not equals or name in records:
            raise Flaw("a PAX header is malformed")
        records[name] = value.decode("latin-1")
        data = data[end:]
    return records


def check_pax(records: Mapping[str, str], header: Header) -> None:
    """Raise Flaw unless the records merely annotate the member they precede.

    Times and owners are ignored, for they are set here. A path or size may repeat what the
    header says. Anything else (link, sparse map, extended attribute, character set, vendor
    keyword) could make another reader see another member.
    """
    for key, value in records.items():
        if key in _PAX_IGNORED:
            continue
        if key == "path" and value.removesuffix("/") == header.name:
            continue
        if key == "size" and value == str(header.size):
            continue
        disagrees = key in {"path", "size"}
        what = "disagrees with its header" if disagrees else "is not taken"
        raise Flaw(f"{subject(header.name)} has a PAX {key[:40]!a} which {what}")
