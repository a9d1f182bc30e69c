"""Reads the parts of an ELF object that the dynamic loader acts upon.

Only what a bundle can hold is accepted: 64-bit little-endian objects for x86-64 and AArch64. The
input may be anything at all; whatever is wrong with it ends in `ElfError`. Layouts are those of
the System V ABI, chapters 4 (header, sections) and 5 (segments, dynamic section).
"""

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bundle.errors import ElfError

MAGIC = b"\x7fELF"
EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
DYN = struct.Struct("<qQ")

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_PROPERTY = 1, 2, 3, 4, 0x6474E553
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29

_IDENT = MAGIC + b"\x02\x01\x01"  # 64-bit, little-endian, version 1
_STRING_MAX = 4096


class Machine(Enum):
    """The two instruction sets a release is built for; the value is ELF's `e_machine`."""

    AMD64 = 62
    ARM64 = 183


class Header(NamedTuple):
    """The ELF header, field for field."""

    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


class Segment(NamedTuple):
    """One program header, field for field; sizes and offsets in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class Span(NamedTuple):
    """A piece of the file and the address it is loaded at; zero size where there is none."""

    offset: int
    vaddr: int
    size: int


NOWHERE = Span(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """What the loader would learn from one object."""

    image: bytes = field(repr=False)
    header: Header
    machine: Machine
    segments: tuple[Segment, ...]
    table: Span
    """Where the dynamic section is."""
    dynamic: tuple[tuple[int, int], ...]
    """Its entries (tag, value) before the terminating null entry."""
    strings: Span
    """Where the string table of the dynamic section is."""
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None


def is_elf(content: bytes) -> bool:
    """Whether the bytes claim to be an ELF object."""
    return content.startswith(MAGIC)


def parse(image: bytes) -> Elf:
    """Read one object. Raises `ElfError` for anything that is not sound."""
    header = _read_header(image)
    machine = _machine(header)
    segments = tuple(
        Segment(*PHDR.unpack(piece(image, header.phoff + at * PHDR.size, PHDR.size, "segment")))
        for at in range(header.phnum)
    )
    table = _span_of(image, segments, PT_DYNAMIC, "dynamic section")
    dynamic = _read_dynamic(image, table)
    values = dict(dynamic)
    strings = _string_span(image, segments, values)

    def texts(tag: int) -> tuple[str, ...]:
        return tuple(_text(image, strings, value) for found, value in dynamic if found == tag)

    return Elf(
        image=image,
        header=header,
        machine=machine,
        segments=segments,
        table=table,
        dynamic=dynamic,
        strings=strings,
        interpreter=_interpreter(image, segments),
        soname=_last(texts(DT_SONAME)),
        needed=texts(DT_NEEDED),
        rpath=_last(texts(DT_RPATH)),
        runpath=_last(texts(DT_RUNPATH)),
    )


def piece(image: bytes, offset: int, size: int, what: str) -> bytes:
    """`size` bytes at `offset`; raises `ElfError` when the file does not have them."""
    if offset < 0 or size < 0 or offset + size > len(image):
        raise broken(f"{what} at {offset} with {size} bytes leaves the file of {len(image)} bytes")
    return image[offset : offset + size]


def broken(problem: str) -> ElfError:
    """The error for an object that is damaged, or made to do damage."""
    return ElfError(f"not a usable ELF object: {problem}", remedy="replace the damaged file")


def _read_header(image: bytes) -> Header:
    header = Header(*EHDR.unpack(piece(image, 0, EHDR.size, "header")))
    if not header.ident.startswith(_IDENT):
        raise broken("it is not a 64-bit little-endian object")
    if header.phnum and header.phentsize != PHDR.size:
        raise broken(f"program headers of {header.phentsize} bytes")
    return header


def _machine(header: Header) -> Machine:
    try:
        return Machine(header.machine)
    except ValueError as error:
        raise ElfError(
            f"machine {header.machine} is neither x86-64 nor AArch64",
            remedy="build on one of the two architectures that releases exist for",
        ) from error


def _span_of(image: bytes, segments: tuple[Segment, ...], kind: int, what: str) -> Span:
    for segment in segments:
        if segment.type == kind:
            piece(image, segment.offset, segment.filesz, what)
            return Span(segment.offset, segment.vaddr, segment.filesz)
    return NOWHERE


def _read_dynamic(image: bytes, table: Span) -> tuple[tuple[int, int], ...]:
    entries: list[tuple[int, int]] = []
    raw = image[table.offset : table.offset + table.size // DYN.size * DYN.size]
    for tag, value in DYN.iter_unpack(raw):
        if tag == DT_NULL:
            return tuple(entries)
        entries.append((tag, value))
    if entries:
        raise broken("its dynamic section does not end")
    return ()


def _string_span(image: bytes, segments: tuple[Segment, ...], values: dict[int, int]) -> Span:
    if DT_STRTAB not in values:
        return NOWHERE
    address, size = values[DT_STRTAB], values.get(DT_STRSZ, 0)
    for load in segments:
        into = address - load.vaddr
        if load.type == PT_LOAD and into >= 0 and into + size <= load.filesz:
            piece(image, load.offset + into, size, "string table")
            return Span(load.offset + into, address, size)
    raise broken(f"its string table at address {address:#x} is not in a loaded segment")


def _text(image: bytes, strings: Span, at: int) -> str:
    if at >= strings.size:
        raise broken(f"string {at} is outside the string table of {strings.size} bytes")
    start, end = strings.offset + at, strings.offset + strings.size
    return _decode(image[start : min(end, start + _STRING_MAX)])


def _interpreter(image: bytes, segments: tuple[Segment, ...]) -> str | None:
    span = _span_of(image, segments, PT_INTERP, "interpreter name")
    if span.size == 0:
        return None
    return _decode(image[span.offset : span.offset + min(span.size, _STRING_MAX)])


def _decode(raw: bytes) -> str:
    text, end, _ = raw.partition(b"\0")
    if not end:
        raise broken(f"a string does not end within {len(raw)} bytes")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken("a string is not UTF-8") from error


def _last(texts: tuple[str, ...]) -> str | None:
    return texts[-1] if texts else None
