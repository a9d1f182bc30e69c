"""A marked block of read-only binds in a machine's `.nspawn` file, and nothing else of it.

Facts it rests on, see systemd.nspawn(5): a second `[Files]` section is merged with the first, so a
block can stand by itself; a bind whose source is missing keeps the machine from booting; files
in /etc win over those in /run as a whole, and both over one beside the image, which is not
trusted and whose binds are ignored. Lines end at a line feed, a backslash at the end of a line
joins the next one to it, comments in between are skipped, an empty line ends that.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nspawn._copying import write_all
from nspawn._refusal import told, unsafe
from nspawn.errors import BadBind, SettingsUntrusted
from nspawn.machine import checked_name

ROOTS: Final = (
    Path("/etc/systemd/nspawn"),
    Path("/run/systemd/nspawn"),
    Path("/var/lib/machines"),
)
"""Where systemd-nspawn looks, in this order; the last is the untrusted place beside the image."""

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ESCAPED = re.compile(r"[\\:]")
_JOINED = re.compile(r"\\\r?\n")
_FALSE = frozenset({"no", "n", "false", "f", "off", "0"})
"""How systemd spells it, in any case."""
_BLANK = r"[ \t\r]*"
_BODY = rf"(?:^{_BLANK}\n)?^\[Files\]{_BLANK}(?:\n|\Z)(?:^BindReadOnly=[^\n]*(?:\n|\Z))*"
"""The inside of a block as `with_binds` writes it."""


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings file that systemd-nspawn reads for a machine, existing or to be made."""

    path: Path
    trusted: bool


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host and where the machine has it; a lone path stands for both."""

    source: Path
    destination: Path


def with_binds(text: str, owner: str, binds: Sequence[Path | Bind]) -> str:
    """`text` with one block of `owner`, at its end, that binds each directory read-only.

    Everything else stays byte for byte; without binds it is `without_binds`. Idempotent.
    Raises BadBind for a path that the format cannot express.
    """
    rest = without_binds(text, owner)
    if not binds:
        return rest
    newline = _newline(rest)
    begin, end = _markers(owner)
    # The empty line ends a continuation that the text before may have left open.
    block = newline.join([begin, "", "[Files]", *map(_bind_line, binds), end])
    # A text whose last line is not ended keeps that: the end of line goes before the block
    # instead of after it, and `without_binds` knows it by the unended last marker.
    return rest + block + newline if not rest or rest.endswith("\n") else rest + newline + block


def without_binds(text: str, owner: str) -> str:
    """`text` without any block of `owner`, whole or with one of its markers lost.

    Where a marker is missing, only lines just as a block holds them are taken to belong to it.
    Undoes `with_binds` byte for byte.
    """
    blocks = list(_blocks(owner).finditer(text))
    kept = "".join(
        text[start:end]
        for start, end in zip(
            [0, *(block.end() for block in blocks)],
            [*(block.start() for block in blocks), len(text)],
            strict=True,
        )
    )
    unended = blocks and blocks[-1].end() == len(text) and not text.endswith("\n")
    return kept.removesuffix(_newline(text)) if unended else kept


def locate(name: str, roots: Sequence[Path] = ROOTS) -> SettingsFile:
    """The file that systemd-nspawn reads for the machine, or the trusted one to make.

    Raises SettingsUntrusted when only the last of `roots` has one: a trusted file would
    replace all of its settings. Raises NoSuchMachine for an impossible name.
    """
    file_name = f"{checked_name(name)}.nspawn"
    *trusted, untrusted = roots
    for root in trusted:
        if os.path.lexists(root / file_name):
            return SettingsFile(path=root / file_name, trusted=True)
    if os.path.lexists(untrusted / file_name):
        raise SettingsUntrusted(
            f"machine {name!r} has only the untrusted settings {untrusted / file_name}",
            remedy=f"move them to {roots[0] / file_name}",
        )
    return SettingsFile(path=roots[0] / file_name, trusted=True)


def says_no_user_namespace(name: str, roots: Sequence[Path] = ROOTS) -> bool:
    """Whether the machine's trusted settings say `PrivateUsers=no`: its root is the host's.

    Anything else is no: by default systemd-nspawn@.service gives a machine users of its own.
    Raises SettingsUntrusted, NoSuchMachine, UnsafePath, RootfsError.
    """
    path = Path(os.path.realpath(locate(name, roots).path))
    with told(path.parent, Path(path.name)):
        text = _content(path) or ""
    section, said = "", ""
    for line in _JOINED.sub(" ", text).split("\n"):
        key, equals, value = line.partition("=")
        if not equals and key.strip().startswith("["):
            section = key.strip()
        elif section == "[Exec]" and key.strip() == "PrivateUsers":
            said = value.strip().lower()
    return said in _FALSE


def apply(
    name: str, owner: str, binds: Sequence[Path | Bind], roots: Sequence[Path] = ROOTS
) -> bool:
    """Make the machine's settings bind exactly these directories for `owner` at its next start.

    One that does not exist is left out, for it would keep the machine from booting. The
    file is written atomically and durably, mode 0644, only when it changes, and removed when
    nothing but our block was in it. Returns whether it changed. Raises SettingsUntrusted,
    BadBind, UnsafePath when the file is no regular one, RootfsError when it cannot be written.
    """
    settings = locate(name, roots)
    # A link, as configuration tools lay them, is followed: what is beneath /etc is trusted.
    path = Path(os.path.realpath(settings.path))
    with told(path.parent, Path(path.name)):
        before = _content(path)
        after = with_binds(before or "", owner, [bind for bind in binds if _source(bind).exists()])
        if after == (before or ""):
            return False
        if after:
            _write(path, after)
        else:
            settings.path.unlink()
            _flush(settings.path.parent)
    return True


def _newline(text: str) -> str:
    """How lines end in `text`, going by its first one."""
    return "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"


def _markers(owner: str) -> tuple[str, str]:
    if not _OWNER.fullmatch(owner):
        raise BadBind(f"{owner!r} cannot mark a block", remedy="use letters, digits, . _ -")
    return f"# BEGIN {owner}", f"# END {owner}"


def _blocks(owner: str) -> re.Pattern[str]:
    """Matches a block of `owner`, or what is left of one."""
    begin, end = (rf"^{_BLANK}{re.escape(marker)}{_BLANK}(?:\n|\Z)" for marker in _markers(owner))
    whole = rf"{begin}(?:(?!{begin}|{end})^[^\n]*\n)*{end}"
    return re.compile(rf"{whole}|{begin}(?:{_BODY})?|(?:{_BODY})?{end}", re.MULTILINE)


def _source(bind: Path | Bind) -> Path:
    return bind.source if isinstance(bind, Bind) else bind


def _bind_line(bind: Path | Bind) -> str:
    # A lone path is source and destination both; a colon separates the two.
    paths = (bind.source, bind.destination) if isinstance(bind, Bind) else (bind,)
    return "BindReadOnly=" + ":".join(map(_escaped, paths))


def _escaped(path: Path) -> str:
    text = str(path)
    if not path.is_absolute() or not text.isprintable() or text != text.rstrip():
        raise BadBind(
            f"settings cannot bind {text!r}", remedy="use an absolute path of printable characters"
        )
    return _ESCAPED.sub(r"\\\g<0>", text)


def _content(path: Path) -> str | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise unsafe(path, "settings can only be kept in a regular file")
    # Bytes that are no UTF-8 survive the way there and back.
    return path.read_bytes().decode(errors="surrogateescape")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(fd, text.encode(errors="surrogateescape"))
            os.fchmod(fd, 0o644)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _flush(path.parent)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
