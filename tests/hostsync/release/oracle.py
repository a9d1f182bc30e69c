"""Archives drawn from primitives, judged by an oracle that shares nothing with the reader.

The oracle sees what was drawn, never the bytes. What is accepted is also compared with what
`tarfile`, an independent and lenient reader, finds in the same bytes.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath

from hostsync.model import SlotKind
from hostsync.release.archive import read_archive
from hostsync.release.inspection import Nowhere, inspect
from hostsync.release.member import Member
from hostsync.release.wanted import Wanted
from tests.hostsync.release.tarball import AGENT, HOST, SCRIPT, TOP, Raw, pax

WANTED = Wanted(agent=AGENT, kind=SlotKind.BUNDLE, arch=HOST)
Found = dict[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A member as drawn; `note` is a PAX record before it, or none."""

    name: str
    type: bytes
    mode: int
    data: bytes
    link: bytes
    magic: bytes
    note: tuple[str, str] | None

    def raw(self) -> list[Raw]:
        member = Raw(
            name=self.name.encode(),
            type=self.type,
            mode=b"%07o" % self.mode,
            data=self.data,
            link=self.link,
            magic=self.magic,
        )
        return [pax(self.note), member] if self.note else [member]


def read(data: bytes) -> Found:
    """What this project's reader takes from the archive; raises Flaw."""
    found: Found = {}

    def noted(member: Member) -> Member:
        content = b"".join(member.content)
        found[member.path] = None if member.is_directory else content
        return Member(
            path=member.path,
            is_directory=member.is_directory,
            mode=member.mode,
            size=member.size,
            content=iter((content,)),
        )

    inspect((noted(member) for member in read_archive([data], WANTED)), WANTED, Nowhere())
    return found


def read_by_tarfile(data: bytes) -> Found:
    """What the standard library's reader finds, implied directories included, the top left out."""
    found: Found = {}
    with tarfile.open(fileobj=BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            content = archive.extractfile(member)
            for above in path.parents:
                found.setdefault(str(above), None)
            found[str(path)] = None if content is None else content.read()
    return {n.removeprefix(f"{TOP}/"): c for n, c in found.items() if n not in {".", TOP}}


PLAIN = re.compile(r"(?!\.{1,2}(?:/|$))[ -.0-\[\]-~]+(?:/(?!\.{1,2}(?:/|$))[ -.0-\[\]-~]+)*")


def is_one_plain_member(m: Drawn) -> bool:
    name = m.name.removesuffix("/") if m.type == b"5" else m.name
    agrees = m.note is None or m.note in {
        ("mtime", "1.5"),
        ("uname", "x"),
        ("path", name),
        ("size", str(len(m.data))),
    }
    return (
        bool(PLAIN.fullmatch(name))
        and (name == TOP or name.startswith(f"{TOP}/"))
        and (m.type == b"0" or (m.type == b"5" and not m.data))
        and not (name == TOP and m.type == b"0")
        and not name.lower().startswith(f"{TOP}/release/")
        and name.lower() != f"{TOP}/release"
        and m.mode & ~0o775 == 0
        and not m.link
        and agrees
    )


def is_one_tree(members: list[Drawn]) -> bool:
    seen: dict[str, tuple[str, bool]] = {}
    for m in members:
        path = PurePosixPath(m.name)
        for above in [p for p in path.parents if str(p) != "."]:
            if seen.setdefault(str(above).lower(), (str(above), True)) != (str(above), True):
                return False
        if str(path).lower() in seen:
            return False
        seen[str(path).lower()] = (str(path), m.type == b"5")
    return True


def has_entry_point(members: list[Drawn]) -> bool:
    return any(
        m.name == f"{TOP}/bin/{AGENT}" and m.type == b"0" and m.mode & 0o100 and m.data == SCRIPT
        for m in members
    )


def good(drawn: list[Drawn]) -> bool:
    return (
        all(is_one_plain_member(m) for m in drawn) and is_one_tree(drawn) and has_entry_point(drawn)
    )
