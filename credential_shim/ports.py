"""What the decisions need from the world. Read by the type checker only, never at run time."""

from typing import Protocol

from credential_shim.exchange import Answer
from credential_shim.identity import Endpoint
from credential_shim.tokens import Token


class Clock(Protocol):
    """Time, as data that a test can choose."""

    def now(self) -> float:
        """Wall clock in seconds since the epoch; it may jump."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back and is shared by all processes."""

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class Sealed(Protocol):
    """A release as the gate looks at it: by paths, which it reads anew at each look."""

    @property
    def own_seal(self) -> str:
        """Path of the seal of the code that is about to act."""

    @property
    def current_link(self) -> str:
        """Path of the link that names the selected release."""

    @property
    def current_seal(self) -> str:
        """Path of the seal of the release behind that link."""

    @property
    def wanted(self) -> str:
        """Path of the seal that the host selects, present in a mirror only."""


class Transport(Protocol):
    """One HTTP exchange with a local identity endpoint."""

    def get(
        self, endpoint: Endpoint, target: str, headers: dict[str, str], seconds: float
    ) -> Answer:
        """Send one GET, return the complete answer within ``seconds``.

        Raises UnreachableError when there is no complete answer, MalformedError when the bytes
        are not HTTP or exceed a limit. Never retries, never follows a redirect, never uses a
        proxy.
        """


class Poster(Protocol):
    """One HTTPS exchange with an authority."""

    def post(self, origin: str, path: str, form: bytes, seconds: float) -> Answer:
        """Send one form to ``https://HOST[:PORT]``, return the complete answer in ``seconds``.

        Raises UnreachableError when there is no complete answer or the server's certificate is
        not trusted, MalformedError when the bytes are not HTTP or exceed a limit, UsageError for
        proxy or certificate settings that cannot be used. Never retries, never follows a redirect.
        """


class Source(Protocol):
    """A way to get a token: one module each."""

    def fetch(self, seconds: float) -> Token:
        """Return a fresh token within ``seconds``, its own retries included.

        Raises UnreachableError, DeniedError, ThrottledError or MalformedError. Asks the issuer
        each time; caching is the caller's.
        """
