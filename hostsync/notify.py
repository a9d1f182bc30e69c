"""The service's word to systemd: READY=1, WATCHDOG=1, STATUS=… (sd_notify(3))."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress


def tell_systemd(message: str) -> None:
    """Send one message to the service manager; nothing to do outside a notify service.

    A message that cannot be sent is lost: systemd's own time-outs are what then speaks.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.connect(address)
        sock.sendall(message.encode())


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear WATCHDOG=1 of this process, None when it does not."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not re.fullmatch("[0-9]{1,18}", microseconds) or int(microseconds) == 0:
        return None
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6
