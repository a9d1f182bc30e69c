"""Compresses to one gzip member on all processors, with the same bytes on any number of them.

The input is cut into blocks of fixed size. Each is deflated by itself, with the end of the block
before as its dictionary and ended on a byte boundary, so that the pieces joined are one ordinary
deflate stream (RFC 1951, RFC 1952). Hosts refuse a file of several members; this is not one.

Releases derived from one another have most blocks in common, and deflating is most of the work, so
a process deflates no block twice.
"""

import hashlib
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
_REMEMBERED = 512
_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"  # no name, no time, unknown system

_deflated: dict[bytes, bytes] = {}
"""Blocks deflated before, by the digest of all they depend on."""


def compress(data: bytes) -> Iterator[bytes]:
    """The pieces of the gzip member for `data`, in order."""
    starts = range(0, max(len(data), 1), _BLOCK)
    yield _HEADER
    # zlib leaves the interpreter lock while it works, so threads are enough.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(partial(_deflate, memoryview(data)), starts)
    yield struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _deflate(data: memoryview, start: int) -> bytes:
    window, block = data[max(0, start - _WINDOW) : start], data[start : start + _BLOCK]
    flush = zlib.Z_FINISH if start + _BLOCK >= len(data) else zlib.Z_SYNC_FLUSH
    key = hashlib.blake2b(b"%d %d " % (len(window), flush) + window + block).digest()
    deflated = _deflated.get(key)
    if deflated is None:
        stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zdict=window)
        deflated = stream.compress(block) + stream.flush(flush)
        if len(_deflated) >= _REMEMBERED:
            _deflated.clear()
        _deflated[key] = deflated
    return deflated
