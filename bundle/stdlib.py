"""Chooses what a bundle keeps of the interpreter: the program and the standard library.

What is dropped is what no part of hostsync imports and what would pull in large libraries: user
interfaces, terminals, small databases, installers and test suites.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bundle.errors import InterpreterError
from bundle.interpreter import Interpreter
from bundle.tree import Entry, read_entry

_DROPPED_ANYWHERE = frozenset({"__pycache__", "test", "tests"})
_DROPPED_AT_TOP = frozenset(
    {"curses", "idlelib", "tkinter", "turtle.py", "turtledemo"}
    | {"dist-packages", "distutils", "ensurepip", "site-packages", "venv"}
    | {"sitecustomize.py", "usercustomize.py"}  # Debian's is a link into /etc
    | {"__phello__", "antigravity.py", "crypt.py", "dbm", "lib2to3", "msilib", "pydoc_data"}
    | {"sqlite3"}
)
_DROPPED_EXTENSIONS = re.compile(
    r"_tkinter|_sqlite3|_curses.*|readline|_gdbm|_dbm|_crypt|nis|spwd|ossaudiodev|audioop"
    r"|_test.*|.*_test|_?xx.*"
)
_CONFIG = re.compile(r"config-.*")  # Makefile, static library and linker script for embedding
_EXTENSIONS = "lib-dynload"


def select(interpreter: Interpreter) -> dict[str, Entry]:
    """The interpreter's files under the names that a relocated prefix needs.

    CPython finds its prefix by walking up from the program to `lib/pythonX.Y/os.py`. Raises
    `InterpreterError` when the standard library is not complete.
    """
    program = f"python/bin/python{interpreter.version}"
    library = f"python/lib/python{interpreter.version}"
    tree = {program: read_entry(interpreter.executable, executable=True)}
    for path in _modules(interpreter.stdlib):
        tree[f"{library}/{path.relative_to(interpreter.stdlib).as_posix()}"] = read_entry(path)
    for landmark in ("os.py", "encodings/__init__.py"):
        if f"{library}/{landmark}" not in tree:
            raise InterpreterError(
                f"the standard library {interpreter.stdlib} lacks {landmark}",
                remedy="install the complete interpreter (Debian: libpython3.11-stdlib)",
            )
    return tree


def _modules(stdlib: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(stdlib):
        here = Path(folder)
        top = here == stdlib
        folders[:] = sorted(name for name in folders if _keeps_folder(name, top=top))
        for name in sorted(files):
            path = here / name
            if _keeps_file(path, top=top) and path.resolve().is_relative_to(stdlib.resolve()):
                yield path


def _keeps_folder(name: str, *, top: bool) -> bool:
    if name in _DROPPED_ANYWHERE:
        return False
    return not (top and (name in _DROPPED_AT_TOP or _CONFIG.fullmatch(name)))


def _keeps_file(path: Path, *, top: bool) -> bool:
    if top and path.name in _DROPPED_AT_TOP:
        return False
    if path.suffix == ".py":
        return True
    module = path.name.partition(".")[0]
    in_place = path.parent.name == _EXTENSIONS and path.suffix == ".so"
    return in_place and not _DROPPED_EXTENSIONS.fullmatch(module)
