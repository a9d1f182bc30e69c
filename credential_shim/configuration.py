"""The configuration file: TOML, for its owner alone, read at each run.

It may hold secrets, and so has mode 0600 or stricter and belongs to root or the caller; anything
else is refused. Parsing TOML takes longer than all the rest of a run that serves a cached token,
hence the second form: the values that are not secret, one a line, in the private cache directory,
used as long as the file is the very same by inode and times.
"""

import os

from credential_shim import entries
from credential_shim._version import VERSION
from credential_shim.errors import UsageError
from credential_shim.layers import SECRETS

LIMIT = 64 * 1024
KEYS = (
    "login", "server_id", "client_id", "object_id", "msi_resource_id", "tenant_id", "cloud",
    "authority_host", "client_secret", "client_secret_file", "client_certificate",
    "client_certificate_password", "client_certificate_password_file", "send_certificate_chain",
    "federated_token_file", "ca_file", "on_skew", "identity_endpoint", "log",
)  # fmt: skip
FILES = (
    "client_secret_file", "client_certificate", "client_certificate_password_file",
    "federated_token_file", "ca_file",
)  # fmt: skip
"""Keys that name files: absolute, or plain names of files beside the configuration."""

_SWITCHES = ("send_certificate_chain",)
_COMPILED = "configuration"
_HIDDEN = "-"
"""Stands for the value of a secret: that it is there is no secret."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Configuration:
    """What a file says; the values of SECRETS are replaced by a mark."""

    __slots__ = ("compiled", "path", "stamp", "values")

    def __init__(self, path: str, stamp: str, values: dict[str, str], *, compiled: bool) -> None:
        self.path: Final = path
        self.stamp: Final = stamp
        self.values: Final = values
        self.compiled: Final = compiled
        """Whether the values came from the cache directory."""

    def secret(self, key: str) -> str:
        """Read one of SECRETS from the file as it is now; raises UsageError."""
        _, values = _read(self.path)
        return values.get(key, "")

    def remember(self, cache_dir: str) -> None:
        """Leave the values where the next run finds them at once. Best effort, atomic."""
        directory = entries.open_directory(cache_dir)
        if self.compiled or directory is None:
            return
        lines = [_heading(self.path, self.stamp), *(f"{k}={v}" for k, v in self.values.items())]
        temporary = f"{_COMPILED}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with open(descriptor, "wb") as file:
                file.write("\n".join([*lines, ""]).encode("ascii"))
            os.rename(temporary, _COMPILED, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            pass
        os.close(directory)


def load(path: str, status: os.stat_result, cache_dir: str) -> Configuration:
    """Return what the file at ``path``, whose status is known, says; raises UsageError."""
    stamp = entries.stamp_of(status)
    values = _remembered(path, stamp, cache_dir)
    if values is not None:
        return Configuration(path, stamp, values, compiled=True)
    stamp, everything = _read(path)
    shown = {key: _HIDDEN if key in SECRETS else text for key, text in everything.items()}
    return Configuration(path, stamp, shown, compiled=False)


def _remembered(path: str, stamp: str, cache_dir: str) -> dict[str, str] | None:
    directory = entries.open_directory(cache_dir)
    if directory is None:
        return None
    raw = entries.read_private(directory, _COMPILED, LIMIT)
    os.close(directory)
    heading, *lines = (raw or b"").decode("latin-1").splitlines() or [""]
    if heading != _heading(path, stamp):
        return None
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _heading(path: str, stamp: str) -> str:
    return f"{VERSION} {stamp} {path}"


def _read(path: str) -> tuple[str, dict[str, str]]:
    """Return the stamp and every value of the file, secrets included."""
    what = f"configuration {path}"
    status, raw = read_file(what, path, private=True, follow=False)
    return entries.stamp_of(status), _parse(path, raw)


def read_file(what: str, path: str, *, private: bool, follow: bool) -> tuple[os.stat_result, bytes]:
    """Return status and content of a regular file, with ``private`` one that is its owner's alone.

    What was opened is what is checked. Raises UsageError, which calls the file ``what``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            _require_acceptable(what, status, private=private)
            with open(descriptor, "rb", closefd=False) as file:
                raw = file.read(LIMIT + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from error
    if len(raw) > LIMIT:
        raise UsageError(f"{what} is longer than {LIMIT} bytes")
    return status, raw


def _require_acceptable(what: str, status: os.stat_result, *, private: bool) -> None:
    if status.st_mode & 0o170000 != 0o100000:
        raise UsageError(f"{what} is not a regular file")
    if not private:
        return
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{what} belongs to user {status.st_uid}; it must be root's: chown 0")
    if status.st_mode & 0o077:
        mode = status.st_mode & 0o7777
        raise UsageError(f"{what} has mode {mode:04o}, and must be its owner's alone: chmod 600")


def _parse(path: str, raw: bytes) -> dict[str, str]:
    import tomllib

    try:
        table = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        # The parser's text may quote what stands there, so only the place is told.
        place = "".join(c for c in str(error).rpartition("(at ")[2] if c.isalnum() or c in ", ")
        raise UsageError(f"configuration {path} is not TOML: {place[:40]}") from error
    return {key: _value(path, key, value) for key, value in table.items()}


def _value(path: str, key: str, value: object) -> str:
    if key not in KEYS:
        named = key[:40] if key.isascii() and key.replace("_", "").isalnum() else "of another form"
        raise UsageError(f"configuration {path} has an unknown key {named}")
    if key in _SWITCHES:
        if not isinstance(value, bool):
            raise UsageError(f"configuration {path}: {key} must be true or false")
        return "true" if value else "false"
    if not isinstance(value, str) or not value:
        raise UsageError(f"configuration {path}: {key} must be a text that is not empty")
    if key not in SECRETS and not (value.isascii() and value.isprintable()):
        raise UsageError(f"configuration {path}: {key} may contain only printable ASCII")
    if key not in FILES or value.startswith("/"):
        return value
    if "/" in value or value in (".", ".."):
        raise UsageError(
            f"configuration {path}: {key} must be an absolute path, or the name of a file beside it"
        )
    return f"{path.rpartition('/')[0]}/{value}"
