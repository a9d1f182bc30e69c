"""Whether processes end that a test has no claim on."""

import os
import select

LONG = 120.0
"""Seconds that nothing takes which ends by itself, on however busy a machine."""


def ended(pid: int) -> bool:
    """Whether a process ends; SIGKILL acts soon, not at once. Nobody may reap an orphan here."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], LONG)[0])
    finally:
        os.close(pidfd)
