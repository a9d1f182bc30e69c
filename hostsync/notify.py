"""The service's word to systemd: READY=1, WATCHDOG=1, STATUS=… (sd_notify(3))."""

from __future__ import annotations

import os
import socket


def tell_systemd(message: str) -> None:
    """Send one message to the service manager; nothing to do outside a notify service."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.sendall(message.encode())


def watchdog_seconds() -> float | None:
    """How often systemd wants to hear WATCHDOG=1, None when it does not."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdigit() else None
