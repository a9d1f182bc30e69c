"""Archives made by hand, field by field, so that a test can get any of them wrong."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hostsync.model import Arch
from hostsync.release import host_arch

AGENT = "hostsync"
HOST = host_arch()
FOREIGN = next(arch for arch in Arch if arch is not HOST)
TOP = f"{AGENT}-linux-{HOST}"
POSIX, GNU = b"ustar\x0000", b"ustar  \x00"
SCRIPT = b"#!/bin/sh\necho 1.0\n"

_MACHINES = {Arch.AMD64: 62, Arch.ARM64: 183}


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A tar member as it stands in the archive; `size` and `checksum` may lie."""

    name: bytes
    type: bytes = b"0"
    data: bytes = b""
    mode: bytes = b"0000644"
    link: bytes = b""
    prefix: bytes = b""
    magic: bytes = POSIX
    size: bytes | None = None
    checksum: bytes | None = None
    padding: bytes = b"\0"

    def to_bytes(self) -> bytes:
        fill = -len(self.data) % 512
        return self._header() + self.data + (self.padding * fill)[:fill]

    def _header(self) -> bytes:
        size = self.size if self.size is not None else b"%011o" % len(self.data)
        fields = (
            (self.name, 100),
            (self.mode, 8),
            (b"0000000", 8),
            (b"0000000", 8),
            (size, 12),
            (b"00000000000", 12),
            (b" " * 8, 8),
            (self.type, 1),
            (self.link, 100),
            (self.magic, 8),
            (b"root", 32),
            (b"root", 32),
            (b"", 8),
            (b"", 8),
            (self.prefix, 167),
        )
        block = b"".join(value.ljust(width, b"\0") for value, width in fields)
        assert len(block) == 512
        return checksummed(block, self.checksum)


def checksummed(block: bytes, checksum: bytes | None = None) -> bytes:
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + (checksum or b"%06o\0 " % sum(blank)) + block[156:]


def file(path: str, data: bytes = b"x", mode: int = 0o644) -> Raw:
    return Raw(name=f"{TOP}/{path}".encode(), data=data, mode=b"%07o" % mode)


def directory(path: str, mode: int = 0o755) -> Raw:
    name = f"{TOP}/{path}/" if path else f"{TOP}/"
    return Raw(name=name.encode(), type=b"5", mode=b"%07o" % mode)


def program(path: str = f"bin/{AGENT}", data: bytes = SCRIPT) -> Raw:
    return file(path, data, 0o755)


def pax(*records: tuple[str, str], type_: bytes = b"x") -> Raw:
    data = b"".join(pax_record(key, value) for key, value in records)
    return Raw(name=b"PaxHeader", type=type_, data=data)


def pax_record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def tar(*members: Raw, end: bytes = bytes(1024)) -> bytes:
    return b"".join(member.to_bytes() for member in members) + end


def bundle(*extra: Raw, end: bytes = bytes(1024)) -> bytes:
    """A small good bundle, with `extra` members at its end."""
    members = (directory(""), directory("bin"), program(), *extra)
    return gzip.compress(tar(*members, end=end), compresslevel=1, mtime=0)


def packed(*members: Raw) -> bytes:
    return gzip.compress(tar(*members), compresslevel=1, mtime=0)


def renamed(member: Raw, name: str) -> Raw:
    return replace(member, name=name.encode())


def elf(arch: Arch, *, bits: int = 2, order: int = 1, machine: int | None = None) -> bytes:
    number = _MACHINES[arch] if machine is None else machine
    identity = b"\x7fELF" + bytes([bits, order, 1]) + bytes(9)
    return identity + b"\x03\x00" + number.to_bytes(2, "little") + bytes(44)


Tree = Mapping[str, tuple[int, bytes | None]]
"""Path → mode and content; a directory has no content."""

RELEASE: Tree = {
    "bin": (0o755, None),
    f"bin/{AGENT}": (0o755, SCRIPT),
    "lib": (0o755, None),
    "lib/data.json": (0o644, b"{}\n"),
    "lib/empty": (0o644, b""),
    "lib/native.so": (0o755, elf(HOST) + bytes(300_000)),
    "lib-two": (0o755, None),
}


def tree_archive(tree: Tree = RELEASE) -> bytes:
    """An archive of `tree`, with its top directory first."""
    members = [
        directory(path, mode) if data is None else file(path, data, mode)
        for path, (mode, data) in tree.items()
    ]
    return packed(directory(""), *members)
