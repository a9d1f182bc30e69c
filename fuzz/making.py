"""Hostile archives from a random source: the same seed gives the same archives.

A case is drawn from primitives, so that an oracle can say what it must come to, or made by
damaging a good archive, so that what is read can only be what was there, or nothing.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.hostsync.release.oracle import Drawn, good
from tests.hostsync.release.tarball import (
    AGENT,
    GNU,
    POSIX,
    SCRIPT,
    TOP,
    Raw,
    checksummed,
    directory,
    file,
    pax,
    program,
    tar,
)

_COMPONENTS = (
    "a", "b", "A", "bin", "lib", AGENT, "x y", "..", ".", "", "\u00e9", "a\\b", "RELEASE", "...",
    "\n", "release", "x" * 101, "-rf", "~", "%2e%2e", "\u202e", "nul", "a:b", "\u2215etc",
)  # fmt: skip
_TOPS = (TOP,) * 12 + ("other", "", ".", "..", TOP.upper(), "/etc", f"./{TOP}", f"{TOP}x")
_TYPES = (b"0",) * 8 + (b"5",) * 6 + tuple(bytes([kind]) for kind in b"1234567\0gXLKSVMND?")
_MODES = (0o644, 0o755, 0o600, 0o775) * 3 + (0o4755, 0o2755, 0o666, 0o1777, 0o10644)
_DATA = (b"",) * 4 + (b"x", SCRIPT, b"y" * 511, b"y" * 512, b"y" * 513, b"z" * 1500)
_NOTES = (
    *(None,) * 10, ("mtime", "1.5"), ("uname", "x"), ("path", f"{TOP}/a"), ("path", "/etc/passwd"),
    ("size", "1"), ("size", "-1"), ("linkpath", "/etc"), ("GNU.sparse.name", "x"),
    ("GNU.sparse.map", "0,1"), ("SCHILY.xattr.security.capability", "x"), ("hdrcharset", "BINARY"),
    ("charset", "BINARY"), ("SCHILY.devmajor", "1"),
)  # fmt: skip
_ENTRY = Drawn(
    name=f"{TOP}/bin/{AGENT}", type=b"0", mode=0o755, data=SCRIPT, link=b"", magic=POSIX, note=None
)  # fmt: skip
_PLAIN = tar(directory(""), program(), pax(("mtime", "1")), file("lib/x", b"content" * 100))
_PACKED = tuple(gzip.compress(_PLAIN, level, mtime=0) for level in range(10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An archive, how it was made, and what the oracle says of it; None: it was damaged.

    A damaged archive may be read as `tarfile` reads it, or be refused; with `of_old`, only as the
    archive that was damaged.
    """

    kind: str
    data: bytes
    is_good: bool | None = None
    of_old: bytes = b""


def make(random: Random) -> Case:
    """One case."""
    return random.choice(_MAKERS)(random)


def _drawn(random: Random) -> Case:
    drawn = [_member(random) for _ in range(random.randrange(4))]
    if random.random() < 0.8:
        drawn.insert(random.randrange(len(drawn) + 1), _ENTRY)
    plain = tar(*(raw for member in drawn for raw in member.raw()))
    return Case(kind="drawn", data=_packed(plain, random), is_good=good(drawn))


def _plain(random: Random) -> Case:
    """Mostly good ones, so that what is accepted is tried as often as what is refused."""
    drawn = [_ENTRY]
    for _ in range(random.randrange(4)):
        below = random.choices(("a", "b", "c", "bin", "lib", "A"), k=random.randrange(1, 4))
        name, is_directory = "/".join([TOP, *below]), random.random() < 0.4
        drawn.insert(
            random.randrange(len(drawn) + 1),
            Drawn(
                name=name,
                type=b"5" if is_directory else b"0",
                mode=random.choice((0o644, 0o755)),
                data=b"" if is_directory else random.choice(_DATA),
                link=b"",
                magic=random.choice((POSIX, GNU)),
                note=random.choice((None, ("mtime", "1.5"), ("path", name))),
            ),
        )
    plain = tar(*(raw for member in drawn for raw in member.raw()))
    return Case(kind="plain", data=_packed(plain, random), is_good=good(drawn))


def _member(random: Random) -> Drawn:
    below = random.choices(_COMPONENTS, k=random.randrange(4))
    name = "/".join([random.choice(_TOPS), *below]) + random.choice(("", "", "", "/"))
    return Drawn(
        name=name.encode()[:100].decode("utf-8", "ignore"),
        type=random.choice(_TYPES),
        mode=random.choice(_MODES),
        data=random.choice(_DATA),
        link=random.choice((b"",) * 9 + (b"/etc",)),
        magic=random.choice((POSIX, GNU)),
        note=random.choice(_NOTES),
    )


def _headers(random: Random) -> Case:
    """Header bytes changed under a right checksum: sizes, types, numbers, names, prefixes."""
    plain = bytearray(_PLAIN)
    at = random.choice(range(0, len(plain) - 1024, 512))
    block = bytearray(plain[at : at + 512])
    for _ in range(random.randrange(1, 5)):
        block[random.randrange(512)] = random.randrange(256)
    plain[at : at + 512] = checksummed(bytes(block))
    return Case(kind="headers", data=_packed(bytes(plain), random))


def _lying(random: Random) -> Case:
    """Sizes and checksums that lie, in every notation that some reader takes."""
    size = random.choice(
        (b"-1", b"77777777777", b"0x10", b"", b" 1", b"\x80" + bytes(11), b"\xff" * 12, b"1 1")
    )
    raw = Raw(
        name=f"{TOP}/x".encode(),
        data=random.choice(_DATA),
        size=size,
        checksum=random.choice((None, None, b"0", b"777777\0 ")),
        padding=random.choice((b"\0", b"\0", b"p")),
    )
    end = bytes(512 * random.randrange(4)) + random.choice((b"", b"", b"tail"))
    return Case(kind="lying", data=_packed(tar(program(), raw, end=end), random))


def _bits(random: Random) -> Case:
    whole = bytearray(random.choice(_PACKED))
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        whole[random.randrange(len(whole))] ^= 1 << random.randrange(8)
    return Case(kind="bits", data=bytes(whole), of_old=_PLAIN)


def _framing(random: Random) -> Case:
    """Cut, continued, doubled, padded, or with every optional field of a gzip header."""
    whole = _PACKED[1]
    cut = random.randrange(len(whole))
    body = whole[10:]
    data = random.choice(
        (
            whole[:cut],
            whole + random.randbytes(random.randrange(1, 40)),
            whole + bytes(random.randrange(1, 600)),
            whole + whole,
            whole[:cut] + random.randbytes(random.randrange(1, 40)) + whole[cut:],
            bytes([31, 139, 8, random.randrange(256)]) + whole[4:],
            b"\x1f\x8b\x08\x08" + whole[4:10] + b"name\0" + body,
            b"\x1f\x8b\x08\x04" + whole[4:10] + b"\x02\x00ab" + body,
            zlib.compress(_PLAIN),
        )
    )
    return Case(kind="framing", data=data, of_old=_PLAIN)


def _noise(random: Random) -> Case:
    plain = random.randbytes(random.randrange(2000))
    packed = _packed(plain, random) if random.random() < 0.5 else b"\x1f\x8b" + plain
    return Case(kind="noise", data=packed)


def _packed(plain: bytes, random: Random) -> bytes:
    return gzip.compress(plain, random.choice((0, 1, 1, 1, 6)), mtime=0)


_MAKERS: tuple[Callable[[Random], Case], ...] = (
    _drawn, _drawn, _drawn, _plain, _headers, _headers, _lying, _bits, _framing, _noise,
)  # fmt: skip
