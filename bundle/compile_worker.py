"""Compiles modules for another process: a program for the interpreter of the bundle alone.

It is run by path, without site and without this package. Input on stdin: frames of two big-endian
32-bit sizes, then a name and a source of these sizes. Output on stdout, in the same order: frames
of one status byte (`+` compiled, `-` refused) and a 32-bit size, then that many bytes: a compiled
module, or the reason why there is none.

Each module is compiled in a fork of the same fresh process. The marshal format marks objects
that are shared, and which ones are depends on all that the process did before; so only a process
that did nothing before gives the same bytes every time.
"""

import gc
import importlib.util
import marshal
import os
import struct
import sys
from collections.abc import Iterator

_REQUEST = struct.Struct(">II")
_ANSWER = struct.Struct(">cI")
_UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""PEP 552: no time is in it, which would differ between builds."""


def compile_module(name: str, source: bytes) -> bytes:
    """The content of the .pyc file of `source`; raises what `compile` raises."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def read_requests(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and sources in the input."""
    at = 0
    while at < len(raw):
        name_size, size = _REQUEST.unpack_from(raw, at)
        start = at + _REQUEST.size + name_size
        yield raw[start - name_size : start].decode(), raw[start : start + size]
        at = start + size


def answer(name: str, source: bytes) -> bytes:
    """The output frame for one module."""
    try:
        status, body = b"+", compile_module(name, source)
    except (SyntaxError, ValueError) as error:
        status, body = b"-", str(error).encode("utf-8", "backslashreplace")
    return _ANSWER.pack(status, len(body)) + body


def main() -> int:
    """Answer all requests; 1 when a child died."""
    gc.disable()  # a collection in a child would copy all that it shares with this process
    for name, source in read_requests(sys.stdin.buffer.read()):
        child = os.fork()
        if child == 0:
            try:
                with open(1, "wb", closefd=False) as stdout:
                    stdout.write(answer(name, source))
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1] != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
