"""A download: streamed into a file without a name, resumed, and proven before anybody reads it.

A download ends in exactly the bytes whose SHA-256 was ordered, or in an error that names scheme,
host and path; the file is gone with its descriptor.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from hostsync.errors import FetchCause, FetchError, Reason, Refused
from hostsync.model import Digest
from hostsync.ports import Clock, Fs
from hostsync.release.flaw import FETCH_AGAIN
from hostsync.release.gzip_stream import COMPRESSED_LIMIT
from hostsync.release.member import MIB
from hostsync.release.setback import Setback, Terms
from hostsync.release.source import Opened
from hostsync.release.url import DownloadUrl
from hostsync.release.web import check_transport, get

if TYPE_CHECKING:
    import httpx

OnFetched = Callable[[int, int | None], None]
"""Told the bytes there so far and in all, None when the server did not say."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 16.0
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_STRONG = re.compile(r'"[!#-~]{1,1000}"')
"""An entity tag that promises equal bytes; a weak one starts with `W/` (RFC 9110, 8.8.3)."""


def show_nothing(_done: int, _total: int | None) -> None:
    """Show nothing."""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a download works with; `room` are the bytes it may take on the disk.

    `jitter` gives numbers in [0, 1), so that hosts which failed together do not return together.
    """

    fs: Fs
    clock: Clock
    terms: Terms = msgspec.field(default_factory=Terms)
    room: int = COMPRESSED_LIMIT
    on_fetched: OnFetched = show_nothing
    jitter: Callable[[], float] = random.random


class _Sink(Protocol):
    """Where the bytes go: a file without a name, or memory."""

    def append(self, data: bytes) -> None:
        """Take more."""

    def restart(self) -> None:
        """Forget all."""


@contextmanager
def fetch(url: DownloadUrl, expected: Digest, directory: Path, means: Means) -> Iterator[Opened]:
    """Download `url` to the filesystem of `directory`; what is yielded has the digest `expected`.

    Nothing has been parsed then, and nobody else can open it; it is gone on leaving. Raises
    FetchError when the network or the server fails, Refused (untrusted-source) for clear text,
    Refused (bad-candidate) for other bytes than those ordered, DiskError.
    """
    check_https(url, means.terms)
    with means.fs.scratch(directory) as scratch:
        transfer = _Transfer(url, means, scratch, min(COMPRESSED_LIMIT, means.room))
        transfer.run(expected)
        yield Opened(fd=scratch.fd, label=str(url), digest=expected)


def fetch_bytes(url: DownloadUrl, limit: int, means: Means) -> bytes:
    """The content at `url`, at most `limit` bytes of it, unproven; raises as `fetch` does."""
    check_https(url, means.terms)
    memory = _Memory()
    _Transfer(url, means, memory, limit).run(None)
    return bytes(memory.content)


def check_https(url: DownloadUrl, terms: Terms) -> None:
    """Refuse (untrusted-source) clear text, unless the configuration names the host."""
    try:
        check_transport(url, terms.insecure_hosts)
    except Setback as setback:
        reason, brief = Reason.UNTRUSTED_SOURCE, f"refusing to fetch {url}: {setback.why}"
        raise Refused(reason, brief, remedy=setback.remedy) from None


class _Memory:
    def __init__(self) -> None:
        self.content = bytearray()

    def append(self, data: bytes) -> None:
        self.content += data

    def restart(self) -> None:
        self.content.clear()


class _Transfer:
    """One download over several attempts: what is there, and what it is a part of."""

    def __init__(self, url: DownloadUrl, means: Means, sink: _Sink, limit: int) -> None:
        self._url = url
        self._means = means
        self._sink = sink
        self._limit = limit
        self._total: int | None = None
        self._restart()
        self._deadline = means.clock.monotonic() + means.terms.total_seconds

    def run(self, expected: Digest | None) -> None:
        for attempt in count(1):
            setback = self._attempt()
            if setback is None:
                if expected is None or self._is_proven(expected):
                    return
                setback = _changing()
            if not (setback.again and self._pause(attempt, setback.wait)):
                raise self._failed(setback)

    def _is_proven(self, expected: Digest) -> bool:
        """Whether the bytes are those ordered; a patchwork that is not is fetched anew, whole."""
        found = Digest(self._sha.hexdigest())
        if found == expected:
            return True
        if self._is_patchwork:
            self._restart()
            return False
        brief = f"{self._url}: its SHA-256 is {found}, ordered was {expected}"
        raise Refused(Reason.BAD_CANDIDATE, brief, remedy=FETCH_AGAIN)

    def _attempt(self) -> Setback | None:
        left = self._deadline - self._means.clock.monotonic()
        try:
            get(self._url, self._headers(), self._means.terms, left, self._receive)
        except Setback as setback:
            return setback
        return None

    def _headers(self) -> dict[str, str]:
        """Ask for the rest where the server can tell that it is of the same bytes."""
        if self._done and self._tag:
            return {"range": f"bytes={self._done}-", "if-range": self._tag}
        return {}

    def _receive(self, response: httpx.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            why = "the server encodes the content although it was asked not to"
            raise Setback(FetchCause.PROTOCOL, why)
        if response.status_code == 200:
            self._restart()
            self._total = _length(response)
            self._tag = _strong_tag(response)
        elif not self._continues(response):
            self._restart()
            raise _changing()
        self._check_size(self._total or 0)
        for chunk in response.iter_raw():
            self._take(chunk)
        if self._total is not None and self._done != self._total:
            why = f"{self._done} of {self._total} bytes came"
            raise Setback(FetchCause.CUT_SHORT, why, again=True)

    def _take(self, chunk: bytes) -> None:
        self._check_size(self._done + len(chunk))
        self._sink.append(chunk)
        self._sha.update(chunk)
        self._done += len(chunk)
        self._means.on_fetched(self._done, self._total)
        if self._means.clock.monotonic() > self._deadline:
            limit = self._means.terms.total_seconds
            why = f"it takes longer than {limit:g} s in all: {self._done} bytes came"
            raise Setback(FetchCause.TOO_SLOW, why)

    def _continues(self, response: httpx.Response) -> bool:
        """Whether a 206 gives exactly the rest of what is there."""
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        if response.status_code != 206 or not found or not self._done:
            return False
        first, last, total = (int(number) for number in found.groups())
        is_the_rest = first == self._done and last == total - 1 == (self._total or total) - 1
        is_the_same = response.headers.get("etag", self._tag) == self._tag
        self._total = total
        self._is_patchwork = True
        return is_the_rest and is_the_same

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            shown = f"{self._limit // MIB} MiB" if self._limit >= MIB else f"{self._limit} bytes"
            why = f"it exceeds the {shown} it may have here"
            remedy = "free space on that filesystem, or check that the URL is that of a release"
            raise Setback(FetchCause.TOO_LARGE, why, remedy=remedy)

    def _restart(self) -> None:
        self._done = 0
        self._total = None
        self._tag = ""
        self._sha = sha256()
        self._is_patchwork = False
        self._sink.restart()

    def _pause(self, attempt: int, wait: float) -> bool:
        """Let time pass before the next attempt; false when there is no time for one."""
        longest = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
        pause = max(wait, longest * (0.5 + self._means.jitter() / 2))
        clock = self._means.clock
        is_last = attempt == self._means.terms.attempts
        if is_last or clock.monotonic() + pause >= self._deadline:
            return False
        clock.sleep(pause)
        return True

    def _failed(self, setback: Setback) -> FetchError:
        return FetchError(
            setback.cause,
            f"cannot fetch {self._url}: {setback.why}",
            remedy=setback.remedy or "check the network and the server, and order again",
        )


def _changing() -> Setback:
    why = "what the server sends changes from one part to the next"
    return Setback(FetchCause.CUT_SHORT, why, again=True)


def _length(response: httpx.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _strong_tag(response: httpx.Response) -> str:
    tag = response.headers.get("etag", "")
    accepts = response.headers.get("accept-ranges", "bytes").lower() == "bytes"
    return tag if accepts and _STRONG.fullmatch(tag) else ""
