"""Compiles modules so that they start fast from a read-only tree, with the same bytes each time.

The bytecode stands in the place of the source, where CPython runs it whatever the times in the tree
are and whether or not it can write. The names compiled in, which tracebacks show, are relative to
the release, as they are in the archive of the sources.
"""

import logging
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bundle import compile_worker, sources
from bundle.cache import NO_CACHE, Cache, key_of
from bundle.errors import BytecodeError
from bundle.interpreter import Interpreter, clean_environment
from bundle.tree import Entry, Tree

log = logging.getLogger(__name__)

_REQUEST = struct.Struct(">II")
_ANSWER = struct.Struct(">cI")
_COMPILE_SECONDS = 300
# Strings hash alike each time; no site, no user site, no current directory, no .pyc, no warnings.
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_FLAGS = ("-S", "-s", "-P", "-B", "-W", "ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What became of some sources: bytecode by the source's name, reasons for those refused."""

    modules: Mapping[str, bytes]
    refused: Mapping[str, str]


def compiled_name(name: str) -> str:
    """Where the bytecode of the source `name` is in a release."""
    return f"{name}c"


def compile_sources(
    modules: Mapping[str, bytes], interpreter: Interpreter, cache: Cache = NO_CACHE
) -> Compiled:
    """Compile each source that the cache does not know, on all processors.

    Raises `BytecodeError` when the interpreter itself fails; a refused source is in the result.
    """
    keys = _keys(modules, interpreter) if cache.is_open else {}
    found = {name: cache.find(key) for name, key in keys.items()}
    known = {name: pyc for name, pyc in found.items() if pyc is not None}
    new = _compile_all({name: modules[name] for name in modules if name not in known}, interpreter)
    for name in keys.keys() & new.modules.keys():
        cache.keep(keys[name], new.modules[name])
    log.info("modules compiled: %d, known from the cache: %d", len(new.modules), len(known))
    return Compiled(modules={**known, **new.modules}, refused=new.refused)


def _keys(modules: Mapping[str, bytes], interpreter: Interpreter) -> dict[str, bytes]:
    """The key of each module in a cache, made of all that decides the bytes of its bytecode.

    Of the interpreter that is what is in its program, its libraries and the modules that it has
    loaded, the worker among them, wherever these are. None has a key where some of it is not to be
    read.
    """
    settings = repr((interpreter.version, interpreter.magic, _FLAGS, _ENVIRONMENT)).encode()
    try:
        files = os.fsdecode(_run(interpreter, "--files")).splitlines()
        contents = sorted(key_of(Path(file).read_bytes()) for file in files)
    except (OSError, BytecodeError) as error:
        log.warning("cache not used for modules: %s", error)
        return {}
    recipe = key_of(settings, *contents)
    return {name: key_of(recipe, name.encode(), source) for name, source in modules.items()}


def _compile_all(modules: Mapping[str, bytes], interpreter: Interpreter) -> Compiled:
    workers = max(1, len(os.sched_getaffinity(0)))
    names = sorted(modules)
    slices = [part for part in (names[at::workers] for at in range(workers)) if part]
    with ThreadPoolExecutor(workers) as pool:
        answers = pool.map(lambda part: _compile(part, modules, interpreter), slices)
        done = {name: frame for answered in answers for name, frame in answered.items()}
    return Compiled(
        modules={name: body for name, (status, body) in done.items() if status == b"+"},
        refused={name: body.decode() for name, (status, body) in done.items() if status != b"+"},
    )


def compile_tree(tree: Tree, interpreter: Interpreter, cache: Cache = NO_CACHE) -> dict[str, Entry]:
    """The tree with bytecode in the place of every module, and an archive of their sources.

    Raises `BytecodeError` for the first module that does not compile.
    """
    modules = {name: entry.content for name, entry in tree.items() if name.endswith(".py")}
    compiled = compile_sources(modules, interpreter, cache)
    for name, reason in sorted(compiled.refused.items()):
        raise BytecodeError(
            f"{tree[name].origin or name} does not compile: {reason}",
            remedy=f"correct it for Python {interpreter.version}, or leave it out",
        )
    rest = {name: entry for name, entry in tree.items() if name not in modules}
    return {**rest, **as_entries(compiled), **sources.pack(modules)}


def as_entries(compiled: Compiled) -> dict[str, Entry]:
    """The compiled modules as files of a release."""
    return {compiled_name(name): Entry(content=pyc) for name, pyc in compiled.modules.items()}


def _compile(
    names: list[str], modules: Mapping[str, bytes], interpreter: Interpreter
) -> dict[str, tuple[bytes, bytes]]:
    request = b"".join(
        _REQUEST.pack(len(name.encode()), len(modules[name])) + name.encode() + modules[name]
        for name in names
    )
    try:
        return dict(zip(names, _frames(_run(interpreter, given=request)), strict=True))
    except (struct.error, ValueError) as error:
        raise _failed(interpreter, error) from error


def _run(interpreter: Interpreter, *arguments: str, given: bytes = b"") -> bytes:
    """What the worker writes when it is given the bytes."""
    try:
        done = subprocess.run(
            [interpreter.executable, *_FLAGS, Path(compile_worker.__file__), *arguments],
            env=clean_environment(**_ENVIRONMENT),
            input=given,
            capture_output=True,
            timeout=_COMPILE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(interpreter, error) from error
    return done.stdout


def _failed(interpreter: Interpreter, error: Exception) -> BytecodeError:
    return BytecodeError(
        f"{interpreter.executable} could not compile: {error}",
        remedy="check that this interpreter starts",
    )


def _frames(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(raw):
        status, size = _ANSWER.unpack_from(raw, at)
        at += _ANSWER.size + size
        yield status, raw[at - size : at]
