"""Adds every shared library a bundle needs beyond glibc, and makes its objects find them.

Which file a name means is asked of the real loader, with its cache, default folders and hardware
variants, so that what is bundled is what would have been loaded on the building machine. glibc
itself is never bundled: a C library has to match its loader, and that one has a fixed path.
"""

import os
import posixpath
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bundle import elf
from bundle.errors import ElfError, LibraryError
from bundle.interpreter import Interpreter, clean_environment
from bundle.relink import relink
from bundle.tree import Entry, Tree, read_entry

LIBRARY_FOLDER = "python/lib"

GLIBC = frozenset(
    {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    | {"libBrokenLocale.so.1", "libanl.so.1", "libc.so.6", "libc_malloc_debug.so.0", "libdl.so.2"}
    | {"libm.so.6", "libmvec.so.1", "libnsl.so.1", "libpthread.so.0", "libresolv.so.2"}
    | {"librt.so.1", "libthread_db.so.1", "libutil.so.1"}
)
"""What the C library of glibc 2.36 (Debian 12) and its neighbours provides, by soname."""

_LISTED = re.compile(r"^\t(\S+) => (.+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_LIST_SECONDS = 30


def close(tree: Tree, interpreter: Interpreter) -> dict[str, Entry]:
    """The tree with all libraries in it, each object relinked to them by relative paths.

    Raises `LibraryError` for a library that is missing or means two different files, `ElfError`
    for an object that cannot be changed.
    """
    found = _find(tree, interpreter)
    known = {entry.origin.resolve(): name for name, entry in tree.items() if entry.origin}
    providers = {
        soname: known.get(path, f"{LIBRARY_FOLDER}/{soname}") for soname, path in found.items()
    }
    closed = dict(tree)
    for soname, path in found.items():
        closed.setdefault(providers[soname], read_entry(path))
    return {
        name: _relinked(name, entry, providers) if elf.is_elf(entry.content) else entry
        for name, entry in closed.items()
    }


def search_path(name: str, needed: tuple[str, ...], providers: Mapping[str, str]) -> str | None:
    """The DT_RPATH for the object `name`, from its own folder to those of its libraries."""
    folders = {f"/{providers[library]}" for library in needed if library in providers}
    relative = {posixpath.relpath(f"{folder}/..", f"/{name}/..") for folder in folders}
    paths = (posixpath.join("$ORIGIN", path).removesuffix("/.") for path in sorted(relative))
    return ":".join(paths) or None


def _find(tree: Tree, interpreter: Interpreter) -> dict[str, Path]:
    """Soname to file of every library beyond glibc that some object of the tree leads to."""
    found: dict[str, Path] = {}
    for entry in tree.values():
        if entry.origin is None or not elf.is_elf(entry.content):
            continue
        for soname, path in _listing(entry.origin, interpreter).items():
            if found.setdefault(soname, path) != path:
                raise LibraryError(
                    f"{soname} means {found[soname]} and, for {entry.origin}, {path}",
                    remedy="build where all objects use one copy of that library",
                )
    return dict(sorted(found.items()))


def _listing(path: Path, interpreter: Interpreter) -> dict[str, Path]:
    try:
        done = subprocess.run(
            [interpreter.loader, "--library-path", interpreter.libdir, "--list", path],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LibraryError(
            f"the loader {interpreter.loader} cannot list {path}: {error}",
            remedy="build on a machine of the interpreter's own architecture",
        ) from error
    if done.returncode != 0:
        reason = os.fsdecode(done.stderr).strip().removeprefix(f"{path}: ")
        raise LibraryError(
            f"{path} cannot be loaded: {reason}",
            remedy="install the package with the missing library, or repair the file",
        )
    text = os.fsdecode(done.stdout)
    return {
        soname: Path(file).resolve()
        for soname, file in _LISTED.findall(text)
        if soname not in GLIBC
    }


def _relinked(name: str, entry: Entry, providers: Mapping[str, str]) -> Entry:
    try:
        needed = elf.parse(entry.content).needed
        lost = [lib for lib in needed if lib not in providers and lib not in GLIBC]
        if lost:
            raise LibraryError(
                f"{entry.origin} needs {', '.join(lost)}, which the loader did not list",
                remedy="check the object with `ldd`",
            )
        rpath = search_path(name, needed, providers)
        return replace(entry, content=relink(entry.content, rpath))
    except ElfError as error:
        raise ElfError(f"{entry.origin}: {error.problem}", remedy=error.remedy) from error
