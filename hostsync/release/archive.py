"""A release archive as a strict stream of members: `.tar.gz`, decided entry by entry.

All of the input is read and judged, to the last byte of padding: what this reader did not
look at cannot mean something to another one. Nothing is looked ahead or back, so no later
entry can change what an earlier one meant, and there are no links to follow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

from hostsync.release.flaw import FETCH_AGAIN, Flaw, subject
from hostsync.release.gzip_stream import GzipStream
from hostsync.release.member import (
    EXPANDED_LIMIT,
    MIB,
    SEAL_NAME,
    Member,
    Roll,
    check_mode,
    check_path,
    directory,
)
from hostsync.release.tar_header import (
    BLOCK,
    PAX_LIMIT,
    Header,
    Kind,
    check_pax,
    parse_header,
    parse_pax,
)
from hostsync.release.wanted import Wanted

_PIECE = 128 * 1024


def read_archive(
    compressed: Iterable[bytes], wanted: Wanted, *, is_long: bool = False
) -> Generator[Member, None, None]:
    """The members of the archive, directories before what they contain, the top left out.

    Directories that are only implied by a path are given too, with mode 0755. Raises Flaw at
    the first entry or byte that breaks a rule; members given until then are to be discarded. For
    `is_long` see `GzipStream`; close it when leaving early.
    """
    with closing(GzipStream(compressed, is_long=is_long)) as stream:
        yield from _members(stream, wanted)


def _members(stream: GzipStream, wanted: Wanted) -> Iterator[Member]:
    roll = Roll()
    for header, content in _entries(stream):
        path = _admitted_path(header, wanted)
        is_directory = header.kind is Kind.DIRECTORY
        for above in roll.admit(header.name, is_directory=is_directory, size=header.size):
            if above != wanted.name:
                yield directory(above.removeprefix(f"{wanted.name}/"))
        if is_directory and path:
            yield directory(path, header.mode)
        elif is_directory:
            # The top is no member, so nobody else looks at its mode.
            check_mode(header.name, header.mode)
        else:
            size, mode = header.size, header.mode
            yield Member(path=path, is_directory=False, mode=mode, size=size, content=content)
    if not roll:
        raise Flaw(f"the archive is empty: it must hold {wanted.name!r}")


def _admitted_path(header: Header, wanted: Wanted) -> str:
    check_path(header.name)
    if header.size > EXPANDED_LIMIT:
        raise Flaw(f"{subject(header.name)} exceeds {EXPANDED_LIMIT // MIB} MiB")
    path = wanted.place(header.name, is_directory=header.kind is Kind.DIRECTORY)
    if path.partition("/")[0].upper() == SEAL_NAME:
        raise Flaw(f"{subject(header.name)} takes the name of the slot's seal")
    return path


def _entries(stream: GzipStream) -> Iterator[tuple[Header, Iterator[bytes]]]:
    """Headers with their content; what the caller left unread is read before the next."""
    while header := _next_header(stream):
        content = _content(stream, header)
        yield header, content
        for _ in content:
            pass
    while rest := stream.take(_PIECE):
        if rest.strip(b"\0"):
            raise Flaw("bytes follow the end of the archive within")


def _next_header(stream: GzipStream) -> Header | None:
    """The next member's header; None after the two zero blocks that end an archive."""
    block = stream.exactly(BLOCK)
    if not block.strip(b"\0"):
        if stream.exactly(BLOCK).strip(b"\0"):
            raise Flaw("a block follows the end of the archive within", remedy=FETCH_AGAIN)
        return None
    header = parse_header(block)
    return _annotated(header, stream) if header.kind is Kind.PAX else header


def _annotated(pax: Header, stream: GzipStream) -> Header:
    if pax.size > PAX_LIMIT:
        raise Flaw(f"a PAX header of {pax.size} bytes exceeds {PAX_LIMIT}")
    records = parse_pax(b"".join(_content(stream, pax)))
    header = parse_header(stream.exactly(BLOCK))
    if header.kind is Kind.PAX:
        raise Flaw("a PAX header precedes another one")
    check_pax(records, header)
    return header


def _content(stream: GzipStream, header: Header) -> Iterator[bytes]:
    left = header.size
    while left:
        piece = stream.take(min(left, _PIECE))
        if not piece:
            raise Flaw(f"{subject(header.name)} is cut short", remedy=FETCH_AGAIN)
        left -= len(piece)
        yield piece
    if stream.exactly(-header.size % BLOCK).strip(b"\0"):
        raise Flaw(f"{subject(header.name)} is followed by bytes hidden in its padding")
