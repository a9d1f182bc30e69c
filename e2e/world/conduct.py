"""How a service of the world is told to misbehave: a small file, written by tests, read by it.

A file rather than an endpoint, because the services live in a network namespace which the test
process cannot reach, and a bind-mounted directory is a channel that needs no privileges.
"""

import json
import os
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What a service does instead of answering well; the default is to answer well.

    `delay` (seconds) is waited before anything else. `drop` closes the connection without a byte.
    `status` other than 0 is answered with `headers` and `body`. `stream` is what becomes of a
    stream, already open or not, when it next has something to send: CUT in the middle of it, or
    SILENT, open without another byte. `times` limits all that to the next so many requests, or
    streams (0: until told otherwise), `only` to paths that begin so, `methods` to these, and
    `every_other` to the first, third, … request for the same object, its status included.
    `token_lifetime` (seconds) is what well-behaved issuers put into tokens, misbehaving or not.
    """

    drop: bool = False
    delay: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    stream: str = ""
    times: int = 0
    only: str = ""
    methods: tuple[str, ...] = ()
    every_other: bool = False
    token_lifetime: int = 86_400

    @property
    def is_good(self) -> bool:
        """Whether requests are answered as they should be, streams aside."""
        return not (self.drop or self.delay or self.status)

    def concerns(self, path: str, method: str) -> bool:
        """Whether it is about requests like this."""
        return path.startswith(self.only) and (not self.methods or method in self.methods)


CUT, SILENT = "cut", "silent"
WRITES = ("PUT", "PATCH")

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


CUT_STREAMS = Conduct(stream=CUT)
SILENT_STREAMS = Conduct(stream=SILENT)
EVERY_OTHER_WRITE_CONFLICTS = Conduct(
    status=409,
    methods=WRITES,
    every_other=True,
    body='{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Conflict",'
    '"message":"the object has been modified; please apply your changes to the latest version and '
    'try again","code":409}',
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


def overloaded(status: int, retry_after: int) -> Conduct:
    """Return a conduct of an API server: 429 or 503 to everything, and when to come back."""
    reason = {429: "TooManyRequests", 503: "ServiceUnavailable"}[status]
    told = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server is currently unable to handle the request",
        "reason": reason,
        "details": {"retryAfterSeconds": retry_after},
        "code": status,
    }
    return Conduct(status=status, headers={"Retry-After": str(retry_after)}, body=json.dumps(told))


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
        self._turns: Counter[str] = Counter()

    def current(self) -> Conduct:
        """Return the conduct asked for, without counting a request against it."""
        with self._lock:
            self._refresh()
            return self._conduct

    def next_for(self, path: str, method: str = "GET") -> Conduct:
        """Return how to treat one request, and count it where `times` says so."""
        with self._lock:
            self._refresh()
            asked = self._conduct
            if not asked.is_good and asked.concerns(path, method) and self._has_turn(path):
                return asked
            return replace(asked, drop=False, delay=0.0, status=0)

    def for_stream(self, path: str) -> str:
        """Return what becomes of a stream that has something to send: CUT, SILENT or ""."""
        with self._lock:
            self._refresh()
            asked = self._conduct
            return (
                asked.stream
                if asked.stream and asked.concerns(path, "GET") and self._spend()
                else ""
            )

    def _has_turn(self, path: str) -> bool:
        if self._conduct.every_other:
            thing = path.removesuffix("/status")
            self._turns[thing] += 1
            if self._turns[thing] % 2 == 0:
                return False
        return self._spend()

    def _spend(self) -> bool:
        if self._conduct.times and self._spent >= self._conduct.times:
            return False
        self._spent += 1
        return True

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
            self._turns.clear()
