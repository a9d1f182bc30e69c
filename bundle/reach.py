"""Proves that nothing was left out of a release which is loaded after all.

What is left out is chosen by name, in `bundle.stdlib` and `bundle.packages`. Here the imports are
followed, as they stand in the sources: from each import of hostsync's own modules, also those that
wait in a function, to all that importing these modules imports. What other libraries import in
functions is not followed: among it are debuggers, servers and asynchronous twins that never run.
"""

import ast
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bundle.cache import NO_CACHE, Cache, key_of
from bundle.errors import PackageError
from bundle.source import PACKAGES

_TOLERANT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@dataclass(frozen=True, slots=True)
class _Import:
    """An import of one module; a tolerant one is inside a `try` that goes on without it."""

    module: str
    tolerant: bool


def check(
    sources: Mapping[str, bytes],
    folders: Collection[str],
    left_out: Collection[str],
    cache: Cache = NO_CACHE,
) -> None:
    """Raise `PackageError` for the first module in `left_out` that a process would import.

    `sources` are the release's by file name, in `folders` that are searched for modules;
    `left_out` are dotted names of modules and packages.
    """
    modules = {_dotted(name, folders): name for name in sources}
    pending = sorted(name for name in modules if name.partition(".")[0] in PACKAGES)
    reached = set(pending)
    while pending:
        importer = pending.pop()
        file = modules[importer]
        own = importer.partition(".")[0] in PACKAGES
        package = importer if file.endswith("/__init__.py") else importer.rpartition(".")[0]
        for found in _read(sources[file], package, own, cache):
            for name in _parents(found.module):
                if name in modules:
                    if name not in reached:
                        reached.add(name)
                        pending.append(name)
                elif name in left_out and not found.tolerant:
                    raise PackageError(
                        f"{file} imports {name}, which the release leaves out",
                        remedy="take it off the list of what is left out",
                    )


def _dotted(name: str, folders: Collection[str]) -> str:
    """The module of a source file: `lib/x/a/b.py` is a.b where lib/x is searched."""
    folder = max((each for each in folders if name.startswith(f"{each}/")), key=len, default="")
    path = name.removeprefix(f"{folder}/").removesuffix(".py").removesuffix("/__init__")
    return path.replace("/", ".")


def _parents(module: str) -> Iterator[str]:
    """a, a.b and a.b.c for a.b.c: all are imported."""
    parts = module.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _read(source: bytes, package: str, own: bool, cache: Cache) -> Collection[_Import]:
    """The imports of one module, as they were read before or as they are read now."""
    key = key_of(_reader(), repr((package, own)).encode(), source)
    known = cache.find(key)
    if known is not None:
        return [_Import(line[1:], line[0] == "?") for line in known.decode().splitlines()]
    found = dict.fromkeys(_imports(ast.parse(source).body, package, own=own, tolerant=False))
    lines = (("?" if each.tolerant else "!") + each.module for each in found)
    cache.keep(key, "\n".join(lines).encode())
    return found


@functools.cache
def _reader() -> bytes:
    """What reads the imports: this program and the grammar of the running Python."""
    return sys.version.encode() + Path(__file__).read_bytes()


def _imports(
    body: Iterable[ast.AST], package: str, *, own: bool, tolerant: bool
) -> Iterator[_Import]:
    for node in body:
        children = _statements(node)
        match node:
            case ast.Import(names=names):
                yield from (_Import(alias.name, tolerant) for alias in names)
            case ast.ImportFrom(names=names):
                base = _absolute(node, package)
                yield _Import(base, tolerant)
                yield from (_Import(f"{base}.{alias.name}", tolerant) for alias in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not own:
                continue
            case ast.If(test=test) if ast.unparse(test).endswith("TYPE_CHECKING"):
                children = tuple(node.orelse)
            case ast.If(test=test) if ast.unparse(test) == "__name__ == '__main__'":
                continue
            case ast.Try(body=tried, handlers=handlers) if any(map(_forgives, handlers)):
                # What the handlers import stands in for what could not be.
                either = (*tried, *handlers)
                yield from _imports(either, package, own=own, tolerant=True)
                children = (*node.orelse, *node.finalbody)
        yield from _imports(children, package, own=own, tolerant=tolerant)


def _statements(node: ast.AST) -> tuple[ast.AST, ...]:
    """What a compound statement holds; no expression imports anything."""
    return tuple(part for name in _BLOCKS for part in getattr(node, name, ()))


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    kept = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _forgives(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(each, ast.Name) and each.id in _TOLERANT for each in caught)
