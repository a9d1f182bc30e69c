"""The three standard descriptors: the only place that writes to them.

Contract (client-go): stdout carries the credential and no other byte; stderr goes raw to the
caller's journal, so every message is one line of its own.
"""

import os
import time

PROGRAM = "hostsync-credential"
_RETRY_SECONDS = 0.005


def fill_closed() -> None:
    """Point standard descriptors that the caller closed at /dev/null.

    Otherwise the next file opened would become descriptor 1 or 2, and a token or a message would
    be written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open("/dev/null", os.O_RDWR)


def write_out(data: bytes) -> bool:
    """Write all of ``data`` to stdout; False when the reader has gone."""
    return _write_all(1, data)


def say(message: str) -> None:
    """Write one line to stderr; control characters are replaced so that it stays one line."""
    line = "".join(char if char.isprintable() else "?" for char in message)
    _write_all(2, f"{PROGRAM}: {line}\n".encode("utf-8", "replace"))


def _write_all(descriptor: int, data: bytes) -> bool:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # The caller made its end of the pipe non-blocking; its other end still has to read.
            time.sleep(_RETRY_SECONDS)
        except OSError:
            return False
    return True
