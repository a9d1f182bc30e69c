"""Settings from the command line, the configuration file and the environment, in this order."""

from credential_shim.errors import UsageError

SECRETS = ("client_secret", "client_certificate_password")
"""Settings whose values are secret: in the file or, as kubelogin has it, in the environment."""

CLIENT_ID_VARIABLES = ("AZURE_CLIENT_ID", "AAD_SERVICE_PRINCIPAL_CLIENT_ID")

_LONGEST_VALUE = 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from credential_shim.configuration import Configuration


class Layers:
    """The same settings from three origins; the first that has one wins, and losing is noted."""

    __slots__ = ("environ", "file", "flags", "notes", "origins")

    def __init__(
        self,
        flags: dict[str, str],
        file: "Configuration | None",
        environ: "Mapping[str, str]",
    ) -> None:
        self.flags: Final = flags
        self.file: Final = file
        self.environ: Final = environ
        self.notes: Final[list[str]] = []
        self.origins: Final[dict[str, str]] = {}
        """Where each value that was taken came from."""

    def take(self, name: str, *variables: str) -> str | None:
        """Return the value of a setting, None where no origin has it; raises UsageError."""
        chosen = self.take_one({name: variables})
        return None if chosen is None else chosen[1]

    def take_one(self, options: "dict[str, tuple[str, ...]]") -> tuple[str, str] | None:
        """Return name and value of the one that is set of alternatives (with their variables).

        Raises UsageError when flags or file have several of them, or the value is not plain.
        """
        found: list[tuple[str, str, str]] = []
        for origin, values in (
            ("the command line", self.flags),
            ("the configuration file", {} if self.file is None else self.file.values),
        ):
            here = [(origin, name, values[name]) for name in options if name in values]
            if len(here) > 1:
                names = ", ".join(map(_spelt, options))
                raise UsageError(f"{origin} may give at most one of {names}")
            found += here
        found += [
            (f"the environment variable {variable}", name, self.environ[variable])
            for name, variables in options.items()
            for variable in variables
            if self.environ.get(variable)
        ]
        return self._first(found)

    def _first(self, found: list[tuple[str, str, str]]) -> tuple[str, str] | None:
        if not found:
            return None
        (origin, name, value), *losers = found
        self.notes.extend(
            f"{_spelt(name)} from {origin} overrides {loser}"
            for loser, *setting in losers
            if setting != [name, value]
        )
        if name not in SECRETS:
            require_plain(f"{_spelt(name)} from {origin}", value)
        self.origins[name] = origin
        return name, value


def require_plain(name: str, value: str) -> None:
    """Raise UsageError unless a value can go into a query, a file name and a journal."""
    if not value or len(value) > _LONGEST_VALUE:
        raise UsageError(f"{name} needs a value of 1 to {_LONGEST_VALUE} characters")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"{name} may contain only printable ASCII without spaces")


def _spelt(name: str) -> str:
    return name.replace("_", "-")
