"""Derives one release from another in seconds: another version, other files, all else the same.

For tests and demonstrations, which need a good release, a newer one and several broken ones.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bundle import bytecode, source, sources
from bundle.archive import Release, read_archive, write_archive
from bundle.errors import ArchiveError
from bundle.interpreter import Interpreter, inspect
from bundle.tree import Entry, Tree

log = logging.getLogger(__name__)

_NOTHING: Mapping[str, bytes] = MappingProxyType({})
_AS_BEFORE: Mapping[str, int] = MappingProxyType({})


def repack(
    archive: Path,
    output: Path,
    *,
    version: str | None = None,
    replace: Mapping[str, bytes] = _NOTHING,
    modes: Mapping[str, int] = _AS_BEFORE,
) -> Path:
    """Write the release in `archive` to the file `output`, changed, and return `output`.

    `version` is put where a build puts it, so that the result is byte for byte the archive that a
    build of this version would give. `replace` maps names relative to the release directory to new
    content, of files there or not; `modes` maps such names to 0o755 or 0o644, without which a file
    keeps its mode and a new one gets 0o644. What ends in `.py` is a source: it goes to the others,
    and its bytecode into the release; one that does not compile has none, so that importing it
    fails. Raises `BundleError` with `output` as before.
    """
    derived = derive(read_archive(archive), version=version, replace=replace, modes=modes)
    write_archive(derived, output)
    log.info("release repacked: %s", output)
    return output


def derive(
    release: Release,
    *,
    version: str | None = None,
    replace: Mapping[str, bytes] = _NOTHING,
    modes: Mapping[str, int] = _AS_BEFORE,
) -> Release:
    """The release with those changes, as `repack` makes it; raises `BundleError`."""
    modules = {name: body for name, body in replace.items() if name.endswith(".py")}
    others = {name: body for name, body in replace.items() if name not in modules}
    tree = {**release.tree, **_changed(release.tree, others, modes)}
    if modules or version is not None:
        known = sources.unpack(release.tree)
        if version is not None:
            modules = {**_stamp(known, version), **modules}
        tree = _recompile(tree, known, modules, _matching_interpreter(release.tree))
    return Release(top=release.top, tree=tree, mtime=release.mtime)


def _stamp(known: Mapping[str, bytes], version: str) -> dict[str, bytes]:
    missing = [name for name in source.version_files() if name not in known]
    if missing:
        raise ArchiveError(
            f"the release has no {missing[0]}", remedy="name an archive that the builder wrote"
        )
    return {
        name: source.stamp(known[name].decode(), version, name=name).encode()
        for name in source.version_files()
    }


def _changed(
    tree: Tree, contents: Mapping[str, bytes], modes: Mapping[str, int]
) -> dict[str, Entry]:
    """The entries that get new content, a new mode, or both."""
    changed: dict[str, Entry] = {}
    for name in {*contents, *modes}:
        before = tree.get(name)
        if before is None and name not in contents:
            raise ArchiveError(
                f"there is no {name} to give a mode", remedy="give it content as well"
            )
        old_content, old_mode = (before.content, before.mode) if before else (b"", 0o644)
        mode = modes.get(name, old_mode)
        if mode not in (0o644, 0o755):
            raise ArchiveError(f"mode {mode:o} for {name}", remedy="use 0o644 or 0o755")
        content = contents.get(name, old_content)
        changed[name] = Entry(content=content, executable=mode == 0o755)
    return changed


def _recompile(
    tree: Tree, known: Mapping[str, bytes], new: Mapping[str, bytes], interpreter: Interpreter
) -> dict[str, Entry]:
    compiled = bytecode.compile_sources(new, interpreter)
    stale = {bytecode.compiled_name(name) for name in compiled.refused}
    kept = {name: entry for name, entry in tree.items() if name not in stale}
    return {**kept, **bytecode.as_entries(compiled), **sources.pack({**known, **new})}


def _matching_interpreter(tree: Tree) -> Interpreter:
    """The running interpreter; raises `ArchiveError` unless its bytecode fits the release."""
    interpreter = inspect()
    landmark = f"python/lib/python{interpreter.version}/os.py"
    compiled = tree.get(bytecode.compiled_name(landmark))
    if compiled is None or not compiled.content.startswith(interpreter.magic):
        raise ArchiveError(
            f"the release holds another Python than {interpreter.version}",
            remedy="repack with the version of Python that built it",
        )
    return interpreter
