"""The cache as the slow path uses it: writing, one fetch at a time, remembered failures.

Best effort throughout: a directory that cannot be made, a full disk, a lock held for too long
cost a request to the endpoint, never a token. Only a directory that others could reach is
refused, and said so. Formats and reading are in ``entries``.
"""

import fcntl
import os

from credential_shim import entries
from credential_shim.entries import LONGEST_HOLD, Entry
from credential_shim.errors import RememberedError, ShimError

HOLD_SECONDS = 1.5
"""How long a failure without a wish of the endpoint's is repeated without asking again."""
LOCK_POLL_SECONDS = 0.02
LONGEST_POLL_SECONDS = 0.2


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from credential_shim.ports import Clock


class Lock:
    """How an attempt to take the identity's lock ended."""

    HELD = "held"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"


def open_store(path: str, key: str, say: "Callable[[str], None]") -> "Store":
    """Return the store for ``key`` in the directory ``path``, made (0700) if need be."""
    directory = entries.open_directory(path)
    if directory is None:
        _make(path)
        directory = entries.open_directory(path)
    if directory is None and os.path.lexists(path):
        say(
            f"cache directory {path} is not used: it must be a directory of the calling user "
            "with mode 0700, and no link"
        )
    return Store(directory, key)


def _make(path: str) -> None:
    parent = path.rstrip("/").rpartition("/")[0]
    for directory, mode in ((parent or "/", 0o755), (path, 0o700)):
        try:
            os.mkdir(directory, mode)  # noqa: PTH102 - pathlib stays out of the shim
        except OSError:
            # It is there already, or cannot be made: whoever opens it finds out.
            continue


class Store:
    """The files of one credential; without a directory it holds nothing and never fails."""

    def __init__(self, directory: int | None, key: str) -> None:
        self._directory = directory
        self._key = key
        self._name = entries.name_of(key)
        self._lock: int | None = None

    def close(self) -> None:
        """Let go of the directory and the lock; the store then holds nothing."""
        self.unlock()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def load(self) -> Entry | None:
        """Return the entry on disk, if there is one that can be trusted."""
        return None if self._directory is None else entries.load(self._directory, self._key)

    def is_rejected(self, entry: Entry, now: float) -> bool:
        """See ``entries.is_rejected``; it also notes that the asker is given ``entry``."""
        if self._directory is None:
            return False
        return entries.is_rejected(self._directory, self._key, entry, now)

    def save(self, entry: Entry) -> None:
        """Replace the entry; earlier failures and the list of who was served are dropped."""
        self._remove(".seen")
        self._write("", entries.serialize(entry, self._key))
        self._remove(".fail")

    def failure(self, now: float) -> RememberedError | None:
        """Return the failure that still holds, if any."""
        if self._directory is None:
            return None
        return entries.failure(self._directory, self._key, now)

    def remember(self, error: ShimError, now: float, hold: float) -> None:
        """Have later runs fail alike for ``hold`` seconds."""
        until = now + min(hold, LONGEST_HOLD)
        line = f"{until:.3f} {now:.3f} {error.exit_code}\n{self._key}\n{error.message}"
        self._write(".fail", line.encode())

    def lock(
        self, clock: "Clock", seconds: float, is_over: "Callable[[], bool]" = lambda: False
    ) -> str:
        """Take the identity's lock, trying for ``seconds`` or until there is no need any more.

        The kernel drops the lock of a process that died. The longer it takes the less often it
        is tried, so that hundreds that wait do not keep the one that fetches from doing so.
        """
        if self._directory is None:
            return Lock.UNAVAILABLE
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._lock = os.open(f"{self._name}.lock", flags, 0o600, dir_fd=self._directory)
        except OSError:
            return Lock.UNAVAILABLE
        end, pause = clock.monotonic() + seconds, LOCK_POLL_SECONDS
        while not _try_lock(self._lock):
            remaining = end - clock.monotonic()
            if remaining <= 0 or is_over():
                self.unlock()
                return Lock.BUSY
            clock.sleep(min(pause, remaining))
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
        return Lock.HELD

    def unlock(self) -> None:
        """Give the lock back, if held."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, suffix: str, data: bytes) -> None:
        if self._directory is None or self._lock is None:
            return
        # Only the lock's holder writes, so a fixed name is enough, and a crash leaves one file.
        temporary, place = f"{self._name}.new", self._directory
        self._remove(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(temporary, flags, 0o600, dir_fd=place), "wb") as file:
                file.write(data)
            os.rename(temporary, f"{self._name}{suffix}", src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            return

    def _remove(self, suffix: str) -> None:
        if self._directory is None:
            return
        try:
            os.unlink(f"{self._name}{suffix}", dir_fd=self._directory)
        except OSError:
            return


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
