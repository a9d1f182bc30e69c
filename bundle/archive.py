"""Writes and reads release archives: one gzip member around a plain ustar file.

The same tree gives the same bytes: names sorted, root as owner, one time for all, no name or time
in the gzip header. The bounds are those that hosts enforce before they unpack, so a release that
they would refuse is refused here, by whoever builds it.
"""

import gzip
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bundle import gzip_member
from bundle.errors import ArchiveError
from bundle.tree import Entry, Tree

MAX_PACKED = 256 << 20
MAX_EXPANDED = 512 << 20
MAX_MEMBERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What an archive holds: a tree under one top directory, all of one time (Unix seconds)."""

    top: str
    tree: Tree
    mtime: int


def write_archive(release: Release, path: Path) -> None:
    """Write the archive, durably and at once: `path` is never half an archive.

    Raises `ArchiveError` for a tree that a host would refuse; then `path` is as before.
    """
    _check(release)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, gzip_member.compress(_tar(release)))


def read_archive(path: Path) -> Release:
    """The content of an archive that this module wrote.

    Raises `ArchiveError` for members or a form that `write_archive` does not produce.
    """
    try:
        with gzip.open(path, "rb") as unpacked:
            raw = unpacked.read(MAX_EXPANDED + 1)
        if len(raw) > MAX_EXPANDED:
            raise _refused(f"{path} expands to more than {MAX_EXPANDED} bytes")
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            release = _read_release(archive, path)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ArchiveError(
            f"cannot read {path}: {error}", remedy="build it again with `python -m bundle`"
        ) from error
    _check(release)
    return release


def _read_release(archive: tarfile.TarFile, path: Path) -> Release:
    tops: set[str] = set()
    times: set[int] = set()
    tree: dict[str, Entry] = {}
    for member in archive:
        top, _, name = member.name.partition("/")
        tops.add(top)
        times.add(int(member.mtime))
        content = archive.extractfile(member) if member.isreg() else None
        if content is not None:
            tree[name] = Entry(content=content.read(), executable=bool(member.mode & 0o100))
        elif not member.isdir():
            raise _refused(f"{path} has {member.name}, neither file nor directory")
    if len(tops) != 1 or len(times) != 1:
        raise _refused(f"{path} has {len(tops)} top directories and {len(times)} times, not one")
    return Release(top=tops.pop(), tree=tree, mtime=times.pop())


def _check(release: Release) -> None:
    names = [*release.tree, *_folders(release.tree)]
    folded = {name.casefold() for name in names}
    if len(folded) != len(names):
        raise _refused("two names differ in nothing but case, or a file is also a directory")
    for name in (release.top, *names):
        if name != str(PurePosixPath(name)) or _is_unsafe(name):
            raise _refused(f"the name {name!r} is not plain and relative")
    if len(names) >= MAX_MEMBERS:
        raise _refused(f"there are {len(names) + 1} members, more than {MAX_MEMBERS}")
    expanded = sum(len(entry.content) for entry in release.tree.values())
    if expanded > MAX_EXPANDED:
        raise _refused(f"the files have {expanded} bytes, more than {MAX_EXPANDED}")


def _is_unsafe(name: str) -> bool:
    return (
        name.startswith("/")
        or name in ("", ".")
        or ".." in name.split("/")
        or not name.isascii()
        or not name.isprintable()
        or "\\" in name
    )


def _folders(tree: Tree) -> set[str]:
    return {str(parent) for name in tree for parent in PurePosixPath(name).parents} - {"."}


def _tar(release: Release) -> bytes:
    out = io.BytesIO()
    try:
        with tarfile.open(fileobj=out, mode="w:", format=tarfile.USTAR_FORMAT) as archive:
            for member, content in _members(release):
                archive.addfile(member, io.BytesIO(content))
    except ValueError as error:  # a name longer than ustar has room for
        raise _refused(str(error)) from error
    return out.getvalue()


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as packed:
            packed.writelines(pieces)
            if packed.tell() > MAX_PACKED:
                raise _refused(f"{path.name} has {packed.tell()} bytes, more than {MAX_PACKED}")
            packed.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def _members(release: Release) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Headers and contents in order; a directory comes before what is in it."""
    for name in sorted(["", *release.tree, *_folders(release.tree)]):
        entry = release.tree.get(name)
        member = tarfile.TarInfo(f"{release.top}/{name}".rstrip("/"))
        member.mtime = release.mtime
        member.uname = member.gname = "root"
        if entry is None:
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            yield member, b""
        else:
            member.mode, member.size = entry.mode, len(entry.content)
            yield member, entry.content


def _refused(problem: str) -> ArchiveError:
    return ArchiveError(problem, remedy="hosts would refuse this release; change what is in it")
