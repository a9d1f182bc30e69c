"""Attempts at a token: how often, and with which pauses, within a time."""

from credential_shim.clock import Deadline
from credential_shim.errors import ShimError

ATTEMPT_SECONDS = 5.0
_LEAST_ATTEMPT_SECONDS = 0.25
"""An attempt shorter than this is not worth a wait."""

MANY = 99
"""As many attempts as there is time for."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from credential_shim.ports import Clock
    from credential_shim.tokens import Token


def until_token(
    attempt: "Callable[[float], Token]", clock: "Clock", seconds: float, login: str
) -> "Token":
    """Call ``attempt`` with the seconds it may take until it returns a token.

    Pauses of 1, 2, 4 … seconds or what the endpoint asked for; as many tries as the last error
    allows and the time. Raises that error, with the number of tries in its message.
    """
    deadline = Deadline(clock, clock.monotonic() + seconds)
    tries = 0
    while True:
        tries += 1
        try:
            return attempt(min(deadline.remaining(), ATTEMPT_SECONDS))
        except ShimError as error:
            wait = max(error.wait, 2.0 ** (tries - 1))
            in_time = wait + _LEAST_ATTEMPT_SECONDS < deadline.remaining()
            if tries >= error.tries or not in_time:
                error.message += f" (login {login}, tries {tries})"
                raise
            clock.sleep(wait)
