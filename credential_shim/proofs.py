"""How a client of Entra shows who it is: a secret, a certificate or another issuer's token.

A proof knows its place at once and its content only when it is read, at each exchange: a rotated
secret is used by the next run, and a run that serves a cached token never holds it.
"""

import os

from credential_shim import entries
from credential_shim.configuration import LIMIT, Configuration, read_file
from credential_shim.errors import UsageError

SECRET, CERTIFICATE, FEDERATED = "secret", "certificate", "federated"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Protocol

    class Place(Protocol):
        """Where a secret stands."""

        def __str__(self) -> str:
            """The place in words; it names a file, a key or a variable, never a value."""

        def revision(self) -> str:
            """Text that differs once the content does; raises UsageError."""

        def read(self) -> bytes:
            """The content; raises UsageError."""


class Proof:
    """A proof of one kind; ``password`` and ``chain`` belong to certificates."""

    __slots__ = ("chain", "kind", "password", "place")

    def __init__(
        self, kind: str, place: "Place", *, password: "Place | None" = None, chain: bool = False
    ) -> None:
        self.kind: Final = kind
        self.place: Final = place
        self.password: Final = password
        self.chain: Final = chain
        """Whether the certificate's chain is sent along (x5c)."""

    @property
    def label(self) -> str:
        """Kind and place, never the content."""
        return f"{self.kind}{'+chain' if self.chain else ''} {self.place}"

    def revision(self) -> str:
        """Return text that differs once the content does; raises UsageError if there is none.

        A federated token is renewed too often to count: its entry is known by the file's path.
        """
        if self.kind == FEDERATED:
            return ""
        password = "" if self.password is None else f"+{self.password.revision()}"
        return self.place.revision() + password

    def read(self) -> bytes:
        """Return the proof's content as it is now; raises UsageError."""
        return self.place.read()

    def text(self) -> str:
        """Return the content as a line of text; raises UsageError for anything else."""
        return line_of(self.place)


def line_of(place: "Place") -> str:
    """Return the one line that stands at ``place``, without its end; raises UsageError."""
    try:
        text = place.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UsageError(f"{place} is not text") from error
    if not text:
        raise UsageError(f"{place} is empty")
    if not text.isprintable():
        raise UsageError(f"{place} holds more than one line, or control characters")
    return text


class FilePlace:
    """A file. Links are followed, as secrets are often mounted so; what is opened is checked."""

    def __init__(self, path: str, *, private: bool = True) -> None:
        if not path.startswith("/"):
            raise UsageError(f"{path} must be an absolute path")
        self._path = path
        self._private = private

    def __str__(self) -> str:
        return f"file {self._path}"

    def revision(self) -> str:
        """The file's inode, length and times: the fast path reads no secret."""
        try:
            return entries.stamp_of(os.stat(self._path))
        except OSError as error:
            raise UsageError(f"{self} cannot be read: {error.strerror}") from error

    def read(self) -> bytes:
        """See ``Place.read``; others may not have access where the file is to be private."""
        return read_file(str(self), self._path, private=self._private, follow=True)[1]


class VariablePlace:
    """An environment variable, as kubelogin has them."""

    def __init__(self, origin: str, value: str) -> None:
        self._origin = origin
        self._value = value

    def __str__(self) -> str:
        return self._origin

    def revision(self) -> str:
        """The beginning of the value's digest."""
        return _digest(self.read())

    def read(self) -> bytes:
        """See ``Place.read``."""
        return os.fsencode(self._value)


class DescriptorPlace:
    """A descriptor that the caller opened. It can be read once, so its content is kept."""

    def __init__(self, number: str) -> None:
        if not (number.isdecimal() and len(number) <= 5 and number not in ("1", "2")):
            raise UsageError("client-secret-fd must be the number of a descriptor open for reading")
        self._number = int(number)
        self._content: bytes | None = None

    def __str__(self) -> str:
        return f"descriptor {self._number}"

    def revision(self) -> str:
        """The beginning of the content's digest."""
        return _digest(self.read())

    def read(self) -> bytes:
        """See ``Place.read``; reads to the end."""
        if self._content is None:
            try:
                with open(self._number, "rb", closefd=False) as file:
                    raw = file.read(LIMIT + 1)
            except OSError as error:
                raise UsageError(f"{self} cannot be read: {error.strerror}") from error
            if len(raw) > LIMIT:
                raise UsageError(f"{self} holds more than {LIMIT} bytes")
            self._content = raw
        return self._content


class ConfiguredPlace:
    """A key of the configuration file itself."""

    def __init__(self, configuration: Configuration, key: str) -> None:
        self._configuration = configuration
        self._key = key

    def __str__(self) -> str:
        return f"{self._key} in {self._configuration.path}"

    def revision(self) -> str:
        """The file's inode, length and times."""
        return self._configuration.stamp

    def read(self) -> bytes:
        """See ``Place.read``."""
        return self._configuration.secret(self._key).encode()


def _digest(content: bytes) -> str:
    """SHA-256, shortened: it tells secrets apart in a directory that holds their tokens anyway."""
    # hashlib loads OpenSSL, which takes as long as the interpreter's start; the module it would
    # fall back on does not. Its name depends on the version.
    for name in ("_sha256", "_sha2"):
        try:
            return str(__import__(name).sha256(content).hexdigest())[:32]
        except ImportError:
            continue
    from hashlib import sha256

    return sha256(content).hexdigest()[:32]
