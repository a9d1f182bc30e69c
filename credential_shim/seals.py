"""Seals: the few lines that say which release a directory holds.

Bytes of a seal: ``agent=``, ``version=``, ``sha256=``, ``protocol=``, one per line, in this order,
each line ended by a newline; lines of later releases may follow. Two seals are equal exactly when
their bytes are.
"""

import os

LIMIT = 4096
"""A seal is a few lines; anything longer is not one."""

_KEYS = (b"agent", b"version", b"sha256", b"protocol")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Seal:
    """A well-formed seal."""

    __slots__ = ("protocol", "raw", "sha256", "version")

    def __init__(self, raw: bytes, *, version: str, sha256: str, protocol: int) -> None:
        self.raw: Final = raw
        self.version: Final = version
        self.sha256: Final = sha256
        self.protocol: Final = protocol

    def __str__(self) -> str:
        return f"{self.version} (sha256 {self.sha256[:12]})"


class Defect:
    """Why there is no seal to compare at ``path``."""

    __slots__ = ("absent", "cause", "path")

    def __init__(self, path: str, cause: str, *, absent: bool = False) -> None:
        self.path: Final = path
        self.cause: Final = cause
        self.absent: Final = absent

    def __str__(self) -> str:
        return f"seal {self.path} {self.cause}"


def read_seal(path: str) -> Seal | Defect:
    """Read the seal at ``path``; the last component may not be a link. Never raises OSError."""
    try:
        raw = _read_bounded(path)
    except FileNotFoundError:
        return Defect(path, "is missing", absent=True)
    except OSError as error:
        return Defect(path, f"cannot be read: {os.strerror(error.errno or 0)}")
    if raw is None:
        return Defect(path, "is not a regular file")
    if len(raw) > LIMIT:
        return Defect(path, f"is longer than {LIMIT} bytes")
    return parse_seal(raw) or Defect(path, "is malformed")


def parse_seal(raw: bytes) -> Seal | None:
    """Return the seal of which ``raw`` is the bytes, or None when it is not well-formed."""
    *lines, end = raw.split(b"\n")
    pairs = [line.split(b"=", 1) for line in lines]
    if end or any(len(pair) != 2 or not _is_plain(pair) for pair in pairs):
        return None
    if tuple(key for key, _ in pairs[:4]) != _KEYS:
        return None
    _, version, sha256, protocol = (value.decode("ascii") for _, value in pairs[:4])
    if len(sha256) != 64 or sha256.strip("0123456789abcdef"):
        return None
    if not protocol.isdecimal() or len(protocol) > 4 or protocol.startswith("0"):
        return None
    return Seal(raw, version=version, sha256=sha256, protocol=int(protocol))


def _is_plain(pair: list[bytes]) -> bool:
    return all(part and all(0x21 <= byte <= 0x7E for byte in part) for part in pair)


def _read_bounded(path: str) -> bytes | None:
    # O_NONBLOCK keeps a FIFO planted under this name from holding the open for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:
            return None
        return os.read(descriptor, LIMIT + 1)
    finally:
        os.close(descriptor)
