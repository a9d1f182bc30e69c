"""How a service of the world is told to misbehave: a small file, written by tests, read by it.

A file rather than an endpoint, because the services live in a network namespace which the test
process cannot reach, and a bind-mounted directory is a channel that needs no privileges.
"""

import json
import os
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What a service does instead of answering well; the default is to answer well.

    `delay` (seconds) is waited before anything else. `drop` closes the connection without a byte.
    `status` other than 0 is answered with `headers` and `body`. `times` limits all that to the next
    so many requests (0: until told otherwise) and `only` to paths that begin so. `token_lifetime`
    (seconds) is what well-behaved issuers put into tokens, misbehaving or not.
    """

    drop: bool = False
    delay: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    times: int = 0
    only: str = ""
    token_lifetime: int = 86_400

    @property
    def is_good(self) -> bool:
        """Whether requests are answered as they should be."""
        return not (self.drop or self.delay or self.status)


GOOD = Conduct()
DOWN = Conduct(drop=True)
UPDATING = Conduct(status=410, body='{"error":"gone","error_description":"being updated"}')
UNKNOWN_IDENTITY = Conduct(
    status=400, body='{"error":"invalid_request","error_description":"Identity not found"}'
)
UNAVAILABLE = Conduct(status=503, body='{"error":"temporarily_unavailable"}')
CAPTIVE_PORTAL = Conduct(
    status=200, headers={"Content-Type": "text/html"}, body="<html>Please sign in</html>"
)


def slow(seconds: float) -> Conduct:
    """Return a conduct that answers well, after `seconds`."""
    return Conduct(delay=seconds)


def throttled(retry_after: int) -> Conduct:
    """Return a conduct that answers 429 and asks to come back after `retry_after` seconds."""
    return Conduct(
        status=429,
        headers={"Retry-After": str(retry_after)},
        body='{"error":"too_many_requests","error_description":"Too many requests"}',
    )


def instruct(path: Path, conduct: Conduct) -> None:
    """Write `conduct` where a service reads it; the next request already sees it."""
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(conduct)))
    scratch.replace(path)


class Instructions:
    """The service's side of the file: read afresh whenever it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = (0, 0)
        self._conduct = GOOD
        self._spent = 0

    def current(self) -> Conduct:
        """Return the conduct asked for, without counting a request against it."""
        with self._lock:
            self._refresh()
            return self._conduct

    def next_for(self, path: str) -> Conduct:
        """Return how to treat one request for `path`, and count it where `times` says so."""
        with self._lock:
            self._refresh()
            asked = self._conduct
            if asked.is_good or not path.startswith(asked.only):
                return replace(asked, drop=False, delay=0.0, status=0)
            if asked.times and self._spent >= asked.times:
                return replace(asked, drop=False, delay=0.0, status=0)
            self._spent += 1
            return asked

    def _refresh(self) -> None:
        try:
            facts = os.stat(self._path)
        except FileNotFoundError:
            return
        identity = (facts.st_mtime_ns, facts.st_ino)
        if identity != self._seen:
            self._seen = identity
            self._conduct = Conduct(**json.loads(self._path.read_bytes()))
            self._spent = 0
