"""Azure Arc's managed identity (HIMDS): a challenge that only a local administrator can answer.

Contract: GET /metadata/identity/oauth2/token?api-version=2020-06-01&resource=ID on loopback is
answered 401 with ``Www-Authenticate: Basic realm=/var/opt/azcmagent/tokens/<guid>.key``; the same
request with ``Authorization: Basic <content of that file>`` is answered as IMDS does.

The endpoint names a file which we read as root and send back, so it may name only regular ``.key``
files that stand directly in that one directory, and is loopback (``arguments`` sees to that).
"""

import os

from credential_shim._version import VERSION
from credential_shim.attempts import until_token
from credential_shim.errors import DeniedError, MalformedError
from credential_shim.exchange import Answer
from credential_shim.identity import Identity
from credential_shim.imds import read_answer, target_of
from credential_shim.tokens import Token

API_VERSION = "2020-06-01"
KEY_DIRECTORY = "/var/opt/azcmagent/tokens"
KEY_LIMIT = 4096
CHALLENGES = 2
"""The first and a fresh one: a key may be replaced between challenge and answer."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from credential_shim.ports import Clock, Transport


class ArcSource:
    """Tokens for the identity of a machine that Azure Arc connects."""

    def __init__(
        self,
        identity: Identity,
        clock: "Clock",
        transport: "Transport",
        *,
        key_directory: str = KEY_DIRECTORY,
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._transport = transport
        self._key_directory = key_directory

    def fetch(self, seconds: float) -> Token:
        """See ``ports.Source.fetch``."""
        return until_token(self._attempt, self._clock, seconds, self._identity.login)

    def _attempt(self, seconds: float) -> Token:
        until = self._clock.monotonic() + seconds
        answer = self._ask({}, until)
        for _ in range(CHALLENGES):
            if answer.status != 401:
                break
            key = read_key(realm_of(answer), self._key_directory)
            answer = self._ask({"Authorization": f"Basic {key}"}, until)
            if answer.status == 401 and "www-authenticate" not in answer.headers:
                break
        return read_answer(answer, self._identity, self._clock.now(), echo_required=True)

    def _ask(self, authorization: dict[str, str], until: float) -> Answer:
        headers = {
            "Metadata": "true",
            "Accept": "application/json",
            "User-Agent": f"hostsync-credential/{VERSION}",
            **authorization,
        }
        target = target_of(self._identity, API_VERSION)
        left = max(0.01, until - self._clock.monotonic())
        return self._transport.get(self._identity.endpoint, target, headers, left)


def realm_of(answer: Answer) -> str:
    """Return the file that a challenge names; raises MalformedError where it is none."""
    scheme, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
    name, _, value = rest.strip().partition("=")
    if scheme.lower() != "basic" or name.strip().lower() != "realm" or not value:
        raise MalformedError("the Azure Arc endpoint's challenge names no key file")
    return value.strip().strip('"')


def read_key(path: str, directory: str) -> str:
    """Return the key at ``path``, which has to be a regular file right in ``directory``.

    Raises MalformedError for any other path, DeniedError when the key cannot be read.
    """
    parent, _, name = path.rpartition("/")
    plain = name.isascii() and name.isprintable() and len(name) <= 128
    if parent != directory or not plain or not name.removesuffix(".key") or name[-4:] != ".key":
        raise MalformedError(f"the Azure Arc endpoint names a key file outside {directory}")
    try:
        raw = _read_beneath(directory, name)
    except OSError as error:
        raise DeniedError(
            f"the Azure Arc key in {directory} cannot be read: {error.strerror}; run as root, and "
            "bind that directory into the machine"
        ) from error
    text = (raw or b"").decode("latin-1").removesuffix("\n").removesuffix("\r")
    if raw is None or not text or not (text.isascii() and text.isprintable()):
        raise MalformedError("the Azure Arc key file is not a small regular file of one line")
    return text


def _read_beneath(directory: str, name: str) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    parent = os.open(directory, flags | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000 or status.st_size > KEY_LIMIT:
            return None
        return os.read(descriptor, KEY_LIMIT)
    finally:
        os.close(descriptor)
