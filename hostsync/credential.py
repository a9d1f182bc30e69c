"""The credential that the host shares with its machines: `credential.toml` and what it names.

The operator's file is read, judged and copied, with the files it names, into a directory of the
host that machines have bound. So a machine sees only what is meant for it, never a file that is
half written or cannot be used, and a replacement by rename, which a bound file would not show.
What the file may say is the plugin's contract, see docs/configuration.md.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hostsync.errors import ConfigError, DiskError
from hostsync.layout import TEMPORARY_PREFIX
from hostsync.ports import Fs

FILE_NAME = "credential.toml"
REASON_NAME = "NOT-SHARED"
"""A file in a machine that has neither bind nor copy; it says why, and nothing secret."""
SWITCHES = ("send_certificate_chain",)
SECRET_FILES = ("client_secret_file", "client_certificate", "client_certificate_password_file")
PUBLIC_FILES = ("federated_token_file", "ca_file")
"""Keys that name files: those that must be private, and those that need not be."""
KEYS = frozenset(
    {
        "login", "server_id", "client_id", "object_id", "msi_resource_id", "tenant_id", "cloud",
        "authority_host", "client_secret", "client_certificate_password", "on_skew",
        "identity_endpoint", "log", *SWITCHES, *SECRET_FILES, *PUBLIC_FILES,
    }
)  # fmt: skip

_LIMIT = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = frozenset({FILE_NAME, REASON_NAME, "config.toml"})
_MODE = 0o600

Files = Mapping[str, bytes]
"""Names and contents, of which nothing may be logged."""


def read(source: Path) -> Files:
    """What the host shares, by name: the file at `source` and those that it names beside it.

    Empty when there is no such file. Raises ConfigError, which quotes no value, for a file that
    others can read, that is not as the plugin wants it, or names a file that cannot be used.
    """
    try:
        content = _read(source, private=True, follow=False)
    except FileNotFoundError:
        return {}
    table = _parse(source, content)
    files = {FILE_NAME: content}
    for key in (*SECRET_FILES, *PUBLIC_FILES):
        name = _beside(source, key, table.get(key))
        if name is not None:
            try:
                path = source.parent / name
                files[name] = _read(path, private=key in SECRET_FILES, follow=True)
            except FileNotFoundError as error:
                raise ConfigError(f"{source}: {key} names {name}, and there is none") from error
    return files


def laid_out(directory: Path) -> Files | None:
    """What machines are given at present; None where nothing was ever shared.

    Raises DiskError.
    """
    try:
        names = sorted(os.listdir(directory))
        return {n: (directory / n).read_bytes() for n in names if _NAME.fullmatch(n)}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskError(f"cannot read {directory}: {error.strerror}") from error


def lay_out(fs: Fs, source: Path, directory: Path) -> bool:
    """Have `directory`, root's alone, hold what is at `source`; whether that was news.

    What a file names is there before the file, and goes after it. Where the source cannot be
    used, what was laid out stays: a slip of the pen must not cost every machine its tokens.
    Raises ConfigError, DiskError.
    """
    wanted = read(source)
    there = laid_out(directory)
    if there is None:
        if not wanted:
            return False
        fs.make_directory(directory, 0o700)
    fs.sweep(directory, TEMPORARY_PREFIX)
    names = sorted(wanted, key=lambda name: (name == FILE_NAME, name))
    news = [n for n in names if (there or {}).get(n) != wanted[n] or not _private(directory / n)]
    gone = sorted(set(there or ()) - set(wanted), key=lambda name: (name != FILE_NAME, name))
    for name in news:
        fs.write(directory / name, wanted[name], _MODE)
    for name in gone:
        fs.remove(directory / name)
    return bool(news or gone)


def stamp(source: Path, directory: Path) -> tuple[object, ...]:
    """What differs once the source, or a file it names, was replaced, written to or removed.

    Empty as long as nothing is shared and nothing is there to be shared.
    """
    if not os.path.lexists(source) and not directory.exists():
        return ()
    names = {source.name}
    with suppress(OSError):
        names.update(os.listdir(directory))
    places = (source.parent, *(source.parent / name for name in sorted(names)))
    return tuple(_stamp(place) for place in places)


def _stamp(path: Path) -> tuple[str, ...]:
    with suppress(OSError):
        status = path.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return (path.name, *map(str, (status.st_dev, status.st_ino, status.st_size, *times)))
    return (path.name,)


def _private(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == _MODE


def _read(path: Path, *, private: bool, follow: bool) -> bytes:
    """The content of a regular file; what was opened is what is checked.

    Raises FileNotFoundError, ConfigError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            _require_acceptable(path, os.fstat(descriptor), private=private)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(_LIMIT + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if not content.strip():
        # An editor that empties a file before it writes must not take the credential away.
        raise ConfigError(f"{path} is empty", remedy="remove it, or write it anew")
    if len(content) > _LIMIT:
        raise ConfigError(f"{path} is longer than {_LIMIT} bytes")
    return content


def _require_acceptable(path: Path, status: os.stat_result, *, private: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not a regular file")
    if not private:
        return
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to user {status.st_uid}", remedy="chown 0 it")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(
            f"{path} has mode {mode:04o}, and must be its owner's alone", remedy="chmod 600 it"
        )


def _parse(source: Path, content: bytes) -> Mapping[str, object]:
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        # The parser's text may quote what stands there, so only the place is told, and the
        # chain is cut: a traceback would quote it too.
        place = "".join(c for c in str(error).rpartition("(at ")[2] if c.isalnum() or c in ", ")
        trouble = f"{source} is not TOML: {place[:40]}"
    else:
        for key, value in table.items():
            _require_meant(source, key, value)
        return table
    raise ConfigError(trouble)


def _require_meant(source: Path, key: str, value: object) -> None:
    if key not in KEYS:
        named = key[:40] if key.isascii() and key.replace("_", "").isalnum() else "of another form"
        trouble = f"{source} has an unknown key {named}"
        raise ConfigError(trouble, remedy="see docs/configuration.md")
    if key in SWITCHES and not isinstance(value, bool):
        raise ConfigError(f"{source}: {key} must be true or false")
    if key not in SWITCHES and (not isinstance(value, str) or not value):
        raise ConfigError(f"{source}: {key} must be a text that is not empty")


def _beside(source: Path, key: str, value: object) -> str | None:
    """The name of a file beside the source; None for none, or one of the machine's own."""
    if not isinstance(value, str):
        return None
    if value.startswith("/"):
        if Path(value).parent == source.parent:
            raise ConfigError(
                f"{source}: {key} names a file of {source.parent}, which machines do not see",
                remedy="name it without its directory, and it is shared along",
            )
        return None
    if not _NAME.fullmatch(value) or value in _RESERVED:
        raise ConfigError(
            f"{source}: {key} must be the plain name of a file beside it, or an absolute path "
            "of the machine's own"
        )
    return value
