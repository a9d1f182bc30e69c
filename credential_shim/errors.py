"""Errors of the shim and the exit codes they end in.

    ShimError            8  internal
    ├─ UsageError        2  the caller's flags, environment or KUBERNETES_EXEC_INFO
    ├─ SkewError         3  the gate refused: a shim of another release than the host selects
    ├─ UnreachableError  4  the identity endpoint cannot be reached, or no answer in time
    ├─ DeniedError       5  the endpoint knows no such identity, or denies it
    ├─ ThrottledError    6  the endpoint asks for a pause (throttled, or being updated)
    └─ MalformedError    7  an answer came, but not one of an identity endpoint

Messages are single lines for a journal. They carry names, addresses and remedies, never a token,
a secret, or text of an answer that was not recognised.

Values here and in the other modules are classes written out by hand, and each module has a
``TYPE_CHECKING`` of its own: importing ``dataclasses`` or ``typing`` takes longer than starting
the interpreter. What only the type checker needs stands in ``ports`` and below that constant.
"""

OK = 0
INTERNAL = 8
INTERRUPTED = 130


class ShimError(Exception):
    """A refusal with a one-line message, how often it may be tried, and how long it holds."""

    exit_code = INTERNAL

    def __init__(
        self, message: str, *, tries: int = 1, wait: float = 0.0, hold: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.tries = tries
        """Attempts in all that this answer deserves within one run."""
        self.wait = wait
        """Seconds the endpoint asked for before the next attempt."""
        self.hold = hold
        """Seconds for which later runs repeat this failure without asking; None: the default."""


class UsageError(ShimError):
    """The command line, the environment or the exec information is wrong."""

    exit_code = 2


class SkewError(ShimError):
    """Not the release which the host selects, or no proof that it is."""

    exit_code = 3


class UnreachableError(ShimError):
    """No usable connection, no answer in time, or only server errors."""

    exit_code = 4


class DeniedError(ShimError):
    """The endpoint answered that the identity is unknown or not allowed."""

    exit_code = 5


class ThrottledError(ShimError):
    """The endpoint asked for a pause."""

    exit_code = 6


class MalformedError(ShimError):
    """The answer is not what an identity endpoint sends."""

    exit_code = 7


class RememberedError(ShimError):
    """A failure of an earlier run that still holds; it ends in that failure's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
