"""Compresses to one gzip member on all processors, with the same bytes on any number of them.

The input is cut into blocks of fixed size. Each is deflated by itself, with the end of the block
before as its dictionary and ended on a byte boundary, so that the pieces joined are one ordinary
deflate stream (RFC 1951, RFC 1952). Hosts refuse a file of several members; this is not one.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

_BLOCK = 1 << 20
_WINDOW = 1 << 15
_LEVEL = 6
_RAW_DEFLATE = -15
_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"  # no name, no time, unknown system


def compress(data: bytes) -> Iterator[bytes]:
    """The pieces of the gzip member for `data`, in order."""
    starts = range(0, max(len(data), 1), _BLOCK)
    yield _HEADER
    # zlib leaves the interpreter lock while it works, so threads are enough.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(partial(_deflate, memoryview(data)), starts)
    yield struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _deflate(data: memoryview, start: int) -> bytes:
    end = start + _BLOCK
    stream = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zdict=data[max(0, start - _WINDOW) : start]
    )
    body = stream.compress(data[start:end])
    return body + stream.flush(zlib.Z_FINISH if end >= len(data) else zlib.Z_SYNC_FLUSH)
