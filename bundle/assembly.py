"""Builds a release archive from the working tree, an interpreter and the environment's packages."""

import logging
import time
from pathlib import Path

from bundle import bytecode, elf, libraries, licenses, packages, reach, source, stdlib
from bundle.archive import Release, write_archive
from bundle.cache import Cache, opened
from bundle.errors import OptionError
from bundle.interpreter import Interpreter, inspect
from bundle.launchers import write_launchers
from bundle.options import BuildOptions
from bundle.tree import Entry, Tree, join

log = logging.getLogger(__name__)

_ARCHITECTURES = {elf.Machine.AMD64: "amd64", elf.Machine.ARM64: "arm64"}


def build(options: BuildOptions) -> Path:
    """Build one release and return its archive, `hostsync-<version>-linux-<arch>.tar.gz`.

    The same options, source, interpreter and packages give the same bytes. Raises `BundleError`
    with nothing written, or `OSError` when the output cannot be written.
    """
    started = time.monotonic()
    if options.keep_tree is not None and options.keep_tree.exists():
        raise OptionError(
            f"{options.keep_tree} exists", remedy="name a directory for --keep-tree that does not"
        )
    version = source.check_version(options.version or source.read_version(options.source))
    interpreter = inspect(options.python)
    architecture = _ARCHITECTURES[interpreter.machine]
    release = Release(
        top=f"hostsync-linux-{architecture}",
        tree=_assemble(options, version, interpreter),
        mtime=options.mtime,
    )
    path = options.output / f"hostsync-{version}-linux-{architecture}.tar.gz"
    write_archive(release, path)
    if options.keep_tree is not None:
        write_tree(release.tree, options.keep_tree)
    size, seconds = path.stat().st_size, time.monotonic() - started
    log.info("release built: %s, %d bytes, %.1f s", path, size, seconds)
    return path


def _assemble(options: BuildOptions, version: str, interpreter: Interpreter) -> Tree:
    """Every file of the release. Raises `BundleError`."""
    log.info("interpreter selected: %s", interpreter.executable)
    root = options.source
    distributions = packages.resolve(packages.requirements(root))
    found = [f"{name} {each.version}" for name, each in distributions.items()]
    log.info("packages selected: %s", ", ".join(found) or "none")
    tree = join(
        (
            stdlib.select(interpreter),
            source.collect(root, version),
            packages.collect(distributions),
        )
    )
    tree = libraries.close(tree, interpreter)
    names = [Path(name).name for name in tree if Path(name).parent == Path("python/lib")]
    log.info("libraries bundled: %s", ", ".join(sorted(names)) or "none")
    tree |= write_launchers(tree, interpreter.version)
    tree |= licenses.collect(tree, root, interpreter)
    log.info("cache selected: %s", options.cache or "none")
    with opened(options.cache) as cache:
        _check_imports(tree, interpreter, cache)
        return bytecode.compile_tree(tree, interpreter, cache)


def _check_imports(tree: Tree, interpreter: Interpreter, cache: Cache) -> None:
    reach.check(
        {name: entry.content for name, entry in tree.items() if name.endswith(".py")},
        (source.PACKAGE_FOLDER, f"python/lib/python{interpreter.version}"),
        stdlib.left_out(interpreter, tree) | packages.LEFT_OUT,
        cache,
    )


def write_tree(tree: Tree, folder: Path) -> None:
    """Write the files of a release beneath a new directory, with the modes of the archive."""
    for name, entry in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_file(path, entry)


def _write_file(path: Path, entry: Entry) -> None:
    path.write_bytes(entry.content)
    path.chmod(entry.mode)
