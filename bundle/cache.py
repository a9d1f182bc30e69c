"""Keeps what builds work out, under the digest of all that it depends on.

A release runs as root, and so does what a build takes from here. So the directory, and the file in
it, have to belong to the user who builds and be writable by nobody else; what is not so is not
used, and the build does without. The digests in the file find damage, as a power cut leaves it.
They are no defence against an adversary: whoever can write here is this user, and could change the
sources, the interpreter and this program as well. Who wants a release that depends on nothing else
builds without a cache; the bytes are the same.

All is in one file, which is read at once and replaced at once, since thousands of small ones take a
tenth of the time that they save. It is bounded: what was used longest ago goes first. Any number of
builds may share it.
"""

import fcntl
import hashlib
import logging
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

FILE = "kept"
MAX_BYTES = 64 << 20
"""Twice what builds for two interpreters keep."""

_NEW = "kept.new"  # written by whoever has the lock of the directory
_RECORD = struct.Struct(">32s32sI")
"""A key, the digest of key and content, and the size of the content, which follows."""


class Cache:
    """Contents by key; where there is no cache to be used, nothing is found or kept."""

    def __init__(self, before: Mapping[bytes, bytes] | None = None) -> None:
        self._before = before or {}
        self.is_open = before is not None
        """Whether anything can be found here."""
        self.used: dict[bytes, bytes] = {}
        """What was found or kept."""
        self.has_more = False
        """Whether something was kept."""

    def find(self, key: bytes) -> bytes | None:
        """What was kept under the key, or None where nothing was."""
        found = self.used.get(key, self._before.get(key))
        if found is not None:
            self.used[key] = found
        return found

    def keep(self, key: bytes, content: bytes) -> None:
        """Have later builds find the content under the key."""
        if self.is_open:
            self.used[key] = content
            self.has_more = True


NO_CACHE = Cache()


def key_of(*parts: bytes) -> bytes:
    """The key of what these parts decide, and nothing else does."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def shared_directory(environment: Mapping[str, str]) -> Path:
    """Where all checkouts of this user keep what can be made again.

    That is HOSTSYNC_CACHE, else hostsync beneath XDG_CACHE_HOME, else beneath ~/.cache. Raises
    RuntimeError for a user without a home.
    """
    if own := environment.get("HOSTSYNC_CACHE"):
        return Path(own)
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hostsync"


def default_directory(environment: Mapping[str, str]) -> Path | None:
    """Where all builds of this user keep what they worked out; None for a user without a home."""
    try:
        return shared_directory(environment) / "bundle"
    except RuntimeError:
        return None


@contextmanager
def opened(directory: Path | None) -> Iterator[Cache]:
    """The cache in the directory, which is made; an idle one where that cannot be used.

    What was kept is written when the work is done. No trouble with the cache is an error.
    """
    folder = None if directory is None else _open(directory)
    if folder is None:
        yield NO_CACHE
        return
    try:
        cache = Cache(_read(folder))
        yield cache
        if cache.has_more:
            _write(folder, cache.used)
    finally:
        os.close(folder)


def _open(directory: Path) -> int | None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        log.warning("cache not used: %s: %s", directory, error.strerror)
        return None
    if _is_ours_alone(os.fstat(folder)):
        return folder
    os.close(folder)
    log.warning("cache not used: %s is another user's, or others can write to it", directory)
    return None


def _is_ours_alone(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(folder: int) -> dict[bytes, bytes]:
    """The sound entries in the file, latest use first; none where it is not ours alone."""
    try:
        with open(os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
            raw = file.read() if _is_ours_alone(os.fstat(file.fileno())) else b""
    except OSError:
        return {}
    found: dict[bytes, bytes] = {}
    at = 0
    while at + _RECORD.size <= len(raw):
        key, digest, size = _RECORD.unpack_from(raw, at)
        at += _RECORD.size + size
        content = raw[at - size : at]
        if digest == _digest(key, content):
            found[key] = content
    return found


def _write(folder: int, used: Mapping[bytes, bytes]) -> None:
    """Put these entries before all others, also those that came meanwhile."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(_NEW, flags, 0o600, dir_fd=folder), "wb") as file:
            for key, content in {**used, **_read(folder), **used}.items():
                if file.tell() + _RECORD.size + len(content) > MAX_BYTES:
                    break
                file.write(_RECORD.pack(key, _digest(key, content), len(content)) + content)
        os.rename(_NEW, FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        log.warning("cache takes nothing: %s", error.strerror)
        with suppress(OSError):
            os.unlink(_NEW, dir_fd=folder)


def _digest(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()
