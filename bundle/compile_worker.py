"""Compiles modules for another process: a program for the interpreter of the bundle alone.

It is run by path, without site and without this package. Input on stdin: frames of two big-endian
32-bit sizes, then a name and a source of these sizes. Output on stdout, in the same order: frames
of one status byte (`+` compiled, `-` refused) and a 32-bit size, then that many bytes: a compiled
module, or the reason why there is none. With `--files` as its argument it names on stdout, one a
line, the files that it is made of: what they hold decides what it gives.

Each module is compiled in a fork of the same fresh process. The marshal format marks objects
that are shared, and which ones are depends on all that the process did before; so only a process
that did nothing before gives the same bytes every time. What every compilation does first is done
once, before the forks: CPython makes its 200 types of syntax nodes when `compile` is first called.
And the process that forks is small, since it holds one request at a time: the kernel copies the
page tables of each fork.
"""

import gc
import importlib.util
import marshal
import os
import struct
import sys
from collections.abc import Iterator
from io import BufferedReader

_REQUEST = struct.Struct(">II")
_ANSWER = struct.Struct(">cI")
_UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""PEP 552: no time is in it, which would differ between builds."""


def compile_module(name: str, source: bytes) -> bytes:
    """The content of the .pyc file of `source`; raises what `compile` raises."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def read_requests(stream: BufferedReader) -> Iterator[tuple[str, bytes]]:
    """The names and sources in the input, each read when it is asked for."""
    while head := stream.read(_REQUEST.size):
        name_size, size = _REQUEST.unpack(head)
        yield stream.read(name_size).decode(), stream.read(size)


def answer(name: str, source: bytes) -> bytes:
    """The output frame for one module."""
    try:
        status, body = b"+", compile_module(name, source)
    except (SyntaxError, ValueError) as error:
        status, body = b"-", str(error).encode("utf-8", "backslashreplace")
    return _ANSWER.pack(status, len(body)) + body


def files() -> list[str]:
    """The program, the libraries and the modules that this process has loaded."""
    compile_module("", "\u00e9 = 0".encode())  # for names beyond ASCII more is loaded
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = [line.rstrip("\n").partition("/") for line in maps]
    return sorted({*filter(None, modules), *("/" + rest for _, slash, rest in mapped if slash)})


def main() -> int:
    """Answer all requests; 1 when a child died."""
    gc.disable()  # a collection in a child would copy all that it shares with this process
    compile_module("", b"")
    with open(0, "rb", closefd=False) as requests:
        served = (_serve(name, source) for name, source in read_requests(requests))
        return 0 if all(served) else 1


def _serve(name: str, source: bytes) -> bool:
    """Answer one request from a fork; False when that died."""
    child = os.fork()
    if child == 0:
        try:
            sys.stdout.buffer.write(answer(name, source))
            sys.stdout.buffer.flush()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--files"]:
        print(*files(), sep="\n")
    else:
        sys.exit(main())
