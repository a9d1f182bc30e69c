"""Makes an ELF object find its libraries relative to itself, and drops what no loader reads.

Why by hand and not with a tool: the same bytes must come out on every build machine, whatever
versions of tools it has, and the one change needed is small.

* The search path is written as DT_RPATH, not DT_RUNPATH: glibc (ld.so(8)) looks at
  LD_LIBRARY_PATH after the former but before the latter, so nobody's environment can put another
  library in place of a bundled one.
* A longer string table cannot grow where it is. It is copied to the end of the file and loaded by
  a segment of its own, whose program header takes the place of a PT_NOTE: no loader needs those,
  and the one taken first says the same as PT_GNU_PROPERTY, which stays.
* Sections that are not loaded (symbols for a debugger, debug information) follow the loaded ones
  and are cut off; the table of the loaded sections stays, so that readelf, gdb and perf still
  know the object.
"""

import struct
from typing import NamedTuple

from bundle.elf import (
    DT_NULL,
    DT_RPATH,
    DT_RUNPATH,
    DT_STRSZ,
    DT_STRTAB,
    DYN,
    EHDR,
    PHDR,
    PT_GNU_PROPERTY,
    PT_LOAD,
    PT_NOTE,
    Elf,
    Segment,
    Span,
    broken,
    parse,
    piece,
)
from bundle.errors import ElfError

SHDR = struct.Struct("<IIQQQQIIQQ")
SHT_NULL, SHT_STRTAB = 0, 3
SHF_ALLOC = 2
PF_R = 4
DT_FLAGS, DT_FLAGS_1 = 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW = 8, 1
_ALIGN_MAX = 1 << 21
_ADDRESS_MAX = 1 << 47


class Section(NamedTuple):
    """One section header, field for field."""

    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int


def relink(image: bytes, rpath: str | None) -> bytes:
    """The object with `rpath` as its only search path (None: with none), and stripped.

    Idempotent. Raises `ElfError` for an unsound object, or one without room for the change.
    """
    elf = parse(image)
    sections = _loaded_sections(elf)
    out = bytearray(image[: _end_of_segments(elf)])
    if elf.runpath is not None or elf.rpath != rpath:
        moved = _move_strings(elf, out, rpath) if rpath is not None else None
        _write_dynamic(elf, out, moved)
        if moved is not None:
            sections = _follow_strings(elf, sections, moved)
    _write_sections(elf, out, sections)
    return bytes(out)


def _end_of_segments(elf: Elf) -> int:
    ends = [segment.offset + segment.filesz for segment in elf.segments]
    end = max([EHDR.size, elf.header.phoff + elf.header.phnum * PHDR.size, *ends])
    piece(elf.image, 0, end, "the segments")
    return end


def _move_strings(elf: Elf, out: bytearray, rpath: str) -> Span:
    """Append the string table with `rpath` at its end, and have it loaded."""
    if elf.strings.size == 0:
        raise ElfError("it is not dynamically linked", remedy="leave static objects as they are")
    text = rpath.encode() + b"\0"
    old = elf.image[elf.strings.offset : elf.strings.offset + elf.strings.size]
    _pad(out, 16)
    span = Span(len(out), _free_address(elf, len(out)), len(old) + len(text))
    segment = Segment(
        type=PT_LOAD,
        flags=PF_R,
        offset=span.offset,
        vaddr=span.vaddr,
        paddr=span.vaddr,
        filesz=span.size,
        memsz=span.size,
        align=_alignment(elf),
    )
    PHDR.pack_into(out, elf.header.phoff + _spare_segment(elf) * PHDR.size, *segment)
    out += old + text
    return span


def _alignment(elf: Elf) -> int:
    align = max([4096, *(load.align for load in elf.segments if load.type == PT_LOAD)])
    if align > _ALIGN_MAX or align & (align - 1):
        raise broken(f"a segment is aligned to {align} bytes")
    return align


def _free_address(elf: Elf, offset: int) -> int:
    """An address above all segments that the file offset can be mapped to."""
    align = _alignment(elf)
    top = max(load.vaddr + load.memsz for load in elf.segments if load.type == PT_LOAD)
    if top > _ADDRESS_MAX:
        raise broken(f"a segment ends at address {top:#x}")
    return (top + align - 1) // align * align + offset % align


def _spare_segment(elf: Elf) -> int:
    """The index of the program header whose loss costs least.

    Segments must be loaded in ascending order of address, so it has to follow the last PT_LOAD.
    """
    last = max(at for at, segment in enumerate(elf.segments) if segment.type == PT_LOAD)
    properties = {segment.offset for segment in elf.segments if segment.type == PT_GNU_PROPERTY}
    notes = [at for at, segment in enumerate(elf.segments) if segment.type == PT_NOTE and at > last]
    if not notes:
        raise ElfError(
            "it has no note segment to give up for the search path",
            remedy="use an interpreter linked with GNU ld (any distribution's, or pyenv's)",
        )
    return min(notes, key=lambda at: (elf.segments[at].offset not in properties, at))


def _write_dynamic(elf: Elf, out: bytearray, moved: Span | None) -> None:
    """Rewrite the dynamic section in place; `moved` is the string table whose last entry counts."""
    entries = [(tag, value) for tag, value in elf.dynamic if tag not in (DT_RPATH, DT_RUNPATH)]
    if moved is not None:
        place = {DT_STRTAB: moved.vaddr, DT_STRSZ: moved.size}
        entries = [(tag, place.get(tag, value)) for tag, value in entries]
        entries.append((DT_RPATH, elf.strings.size))
    room = elf.table.size // DYN.size
    if len(entries) >= room:
        entries = _without_repetition(entries)
    if len(entries) >= room:
        raise ElfError(
            f"its dynamic section has no room for entry {len(entries)} of {room}",
            remedy="use an object linked with GNU ld, which keeps spare entries",
        )
    entries += [(DT_NULL, 0)] * (room - len(entries))
    raw = b"".join(DYN.pack(*entry) for entry in entries)
    out[elf.table.offset : elf.table.offset + len(raw)] = raw


def _without_repetition(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The entries without what another says too.

    Linkers that keep no spare entries (lld, which links Rust's objects) ask for immediate binding
    twice, in DT_FLAGS and in DT_FLAGS_1; the loader takes either for both.
    """
    now = any(tag == DT_FLAGS_1 and value & DF_1_NOW for tag, value in entries)
    return [entry for entry in entries if not (now and entry == (DT_FLAGS, DF_BIND_NOW))]


def _loaded_sections(elf: Elf) -> list[tuple[bytes, Section]]:
    """Names and headers up to the last loaded section; none where the table is absent."""
    header = elf.header
    if not (header.shoff and header.shnum and header.shstrndx < header.shnum):
        return []
    if header.shentsize != SHDR.size:
        raise broken(f"section headers of {header.shentsize} bytes")
    raw = piece(elf.image, header.shoff, header.shnum * SHDR.size, "section table")
    table = [Section(*fields) for fields in SHDR.iter_unpack(raw)]
    names = table[header.shstrndx]
    text = piece(elf.image, names.offset, names.size, "section names")
    loaded = [at for at, section in enumerate(table) if section.flags & SHF_ALLOC]
    kept = table[: max(loaded, default=-1) + 1]
    return [(text[section.name :].partition(b"\0")[0][:64], section) for section in kept]


def _follow_strings(
    elf: Elf, sections: list[tuple[bytes, Section]], moved: Span
) -> list[tuple[bytes, Section]]:
    """The headers with the one of the string table pointing at its new place."""

    def follow(section: Section) -> Section:
        if (section.type, section.addr) != (SHT_STRTAB, elf.strings.vaddr):
            return section
        return section._replace(addr=moved.vaddr, offset=moved.offset, size=moved.size)

    return [(name, follow(section)) for name, section in sections]


def _write_sections(elf: Elf, out: bytearray, sections: list[tuple[bytes, Section]]) -> None:
    """Append the section table and its names, and point the header at them."""
    header = elf.header._replace(shoff=0, shentsize=0, shnum=0, shstrndx=0)
    if sections:
        names = bytearray(b"\0")
        table = [_renamed(section, name, names) for name, section in sections]
        own = len(names)
        names += b".shstrtab\0"
        table.append(Section(own, SHT_STRTAB, 0, 0, len(out), len(names), 0, 0, 1, 0))
        out += names
        _pad(out, 8)
        header = header._replace(
            shoff=len(out), shentsize=SHDR.size, shnum=len(table), shstrndx=len(table) - 1
        )
        for section in table:
            link = section.link if section.link < len(sections) else 0
            out += SHDR.pack(*section._replace(link=link))
    EHDR.pack_into(out, 0, *header)


def _renamed(section: Section, name: bytes, names: bytearray) -> Section:
    """The section under its name in the new name table; one that is not loaded becomes void."""
    if not section.flags & SHF_ALLOC:
        return Section(0, SHT_NULL, 0, 0, 0, 0, 0, 0, 0, 0)
    at = len(names)
    names += name + b"\0"
    return section._replace(name=at)


def _pad(out: bytearray, align: int) -> None:
    out += bytes(-len(out) % align)
