"""The expanded bytes of exactly one gzip member, under caps.

`zlib` is driven by hand because `gzip.GzipFile` joins concatenated members in silence, skips
zero padding, and expands without a bound on the ratio. Facts this rests on: zlib in gzip mode
checks the header's flags, the CRC and the length; `decompress` with a maximum length may hold
back output although it has taken all input; `unused_data` is what came after the member.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable

from hostsync.release.ahead import read_ahead
from hostsync.release.flaw import FETCH_AGAIN, Flaw
from hostsync.release.member import EXPANDED_LIMIT, MIB

MAGIC = b"\x1f\x8b"
COMPRESSED_LIMIT = 256 * MIB
RATIO_LIMIT = 200
"""Expanded over compressed bytes, held once `RATIO_FREE` bytes have come out."""
RATIO_FREE = 16 * MIB

_GZIP_ONLY = 16 + zlib.MAX_WBITS
_PIECE = 128 * 1024


def expanded_size(trailer: bytes) -> int:
    """How much a stream with these last four bytes comes to, if it is sound (RFC 1952, 2.3.1).

    It is a claim, and modulo 4 GiB: only at the end of the stream is it compared with what came.
    """
    return int.from_bytes(trailer[-4:], "little")


class GzipStream:
    """A reader over compressed chunks; every method raises Flaw at the first wrong byte.

    Of a long stream the next pieces are inflated on a thread meanwhile, which `close` ends.
    """

    def __init__(self, compressed: Iterable[bytes], *, is_long: bool = False) -> None:
        self._source = iter(compressed)
        self._inflater = zlib.decompressobj(_GZIP_ONLY)
        self._taken = 0
        self._expanded = 0
        self._pieces = read_ahead(self._expand()) if is_long else self._expand()
        self._piece = b""
        self._at = 0

    def close(self) -> None:
        """End what goes on beside."""
        self._pieces.close()

    def take(self, limit: int) -> bytes:
        """Between 1 and `limit` bytes; none only at the end, when all of the source was checked."""
        if self._at == len(self._piece):
            self._piece, self._at = next(self._pieces, b""), 0
        # What is asked for in whole is handed on as it is, not copied.
        head = self._piece[self._at : self._at + limit]
        self._at += len(head)
        return head

    def exactly(self, size: int) -> bytes:
        """The next `size` bytes; Flaw when there are fewer."""
        found = self.take(size) if size else b""
        while len(found) < size:
            part = self.take(size - len(found))
            if not part:
                raise Flaw("the archive within ends too early", remedy=FETCH_AGAIN)
            found += part
        return found

    def _expand(self) -> Generator[bytes, None, None]:
        while not self._inflater.eof:
            data = self._inflater.unconsumed_tail or self._next_chunk()
            try:
                piece = self._inflater.decompress(data, _PIECE)
            except zlib.error as error:
                raise Flaw("its compressed data is damaged", remedy=FETCH_AGAIN) from error
            self._expanded += len(piece)
            self._check_caps()
            if piece:
                yield piece
            elif not data and not self._inflater.eof:
                raise Flaw("its compressed data is cut short", remedy=FETCH_AGAIN)
        self._check_nothing_follows()

    def _next_chunk(self) -> bytes:
        chunk = next(self._source, b"")
        self._taken += len(chunk)
        if self._taken > COMPRESSED_LIMIT:
            raise Flaw(f"it exceeds {COMPRESSED_LIMIT // MIB} MiB compressed")
        return chunk

    def _check_caps(self) -> None:
        if self._expanded > EXPANDED_LIMIT:
            raise Flaw(f"it exceeds {EXPANDED_LIMIT // MIB} MiB expanded")
        used = self._taken - len(self._inflater.unconsumed_tail)
        if self._expanded > RATIO_FREE and self._expanded > RATIO_LIMIT * used:
            raise Flaw(f"it expands more than {RATIO_LIMIT}:1")

    def _check_nothing_follows(self) -> None:
        rest = self._inflater.unused_data or self._next_chunk()
        if rest.startswith(MAGIC):
            raise Flaw("a second gzip member follows the first")
        if rest:
            raise Flaw("bytes follow the end of its compressed data", remedy=FETCH_AGAIN)
