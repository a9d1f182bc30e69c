"""What is known of worker machines restarted on an operation's order: a small durable journal.

A restart of a machine switches nothing, so it needs no judge. It needs to be remembered, so that a
daemon killed half-way neither forgets it nor does it twice.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hostsync.errors import DiskError
from hostsync.ports import Fs

KEPT = 50
JOURNAL_NAME = "reboots.json"


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One restart of a machine. `before` is the invocation of its unit that is to end.

    Times are in seconds since the epoch; `ended_at` is None while it is under way, and `trouble`
    says why it failed, empty when it did not.
    """

    uid: str
    operation: str
    machine: str
    before: str
    started_at: float
    ended_at: float | None = None
    trouble: str = ""


class _Journal(msgspec.Struct, kw_only=True):
    schema: int = 1
    restarts: list[Restart] = []


class Restarts:
    """The journal on disk, newest last."""

    def __init__(self, directory: Path, fs: Fs) -> None:
        self.path = directory / JOURNAL_NAME
        self._fs = fs

    def all(self) -> tuple[Restart, ...]:
        """Every restart that is remembered; none when the file is missing or damaged.

        Raises DiskError when there is one that cannot be read.
        """
        try:
            return tuple(msgspec.json.decode(self.path.read_bytes(), type=_Journal).restarts)
        except (FileNotFoundError, msgspec.DecodeError):
            return ()
        except OSError as error:
            raise DiskError(f"cannot read {self.path}: {error.strerror}") from error

    def find(self, uid: str) -> Restart | None:
        """What is known of one operation's restart."""
        return next((each for each in self.all() if each.uid == uid), None)

    def store(self, restart: Restart) -> Restart:
        """Remember a restart, in the place of what was known of it, and return it."""
        others = [each for each in self.all() if each.uid != restart.uid]
        journal = _Journal(restarts=[*others, restart][-KEPT:])
        self._fs.make_directory(self.path.parent, 0o700)
        self._fs.write(self.path, msgspec.json.encode(journal) + b"\n", 0o600)
        return restart
