"""A token as a source hands it over."""

from credential_shim.errors import MalformedError

LONGEST_TOKEN = 64 * 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Token:
    """A bearer token and the instant it ends; its text shows up in no representation."""

    __slots__ = ("expires", "value", "warnings")

    def __init__(self, value: str, *, expires: float, warnings: tuple[str, ...] = ()) -> None:
        self.value: Final = value
        self.expires: Final = expires
        """Seconds since the epoch on the local clock."""
        self.warnings: Final = warnings

    def __repr__(self) -> str:
        return f"Token(expires={self.expires})"


def require_token(value: object) -> str:
    """Return ``value`` when it can be a bearer token: one line of printable ASCII.

    Raises MalformedError, which does not repeat the value.
    """
    if not isinstance(value, str) or not value or len(value) > LONGEST_TOKEN:
        raise MalformedError("the identity endpoint's answer holds no token")
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise MalformedError("the identity endpoint's token is not one line of printable ASCII")
    return value
