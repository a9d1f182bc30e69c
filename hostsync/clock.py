"""The real clock."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """`ports.Clock` on the kernel's clocks."""

    def monotonic(self) -> float:
        """See `ports.Clock.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """See `ports.Clock.wall`."""
        return time.time()

    def boot_id(self) -> str:
        """See `ports.Clock.boot_id`.

        In a container the kernel's id is that of the outer host, so the start of this PID
        namespace's first process is part of it.
        """
        started = Path("/proc/1/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
        return f"{_BOOT_ID.read_text('ascii').strip()}/{started}"

    def sleep(self, seconds: float) -> None:
        """See `ports.Clock.sleep`."""
        time.sleep(seconds)
