"""Chooses what a bundle keeps of the interpreter: the program and the standard library.

What is dropped is what no part of hostsync imports: user interfaces, debuggers, servers, formats
and codecs of others, installers and test suites. Fewer files make an upgrade faster, and leave less
to look through. `bundle.reach` proves that nothing in use is dropped.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bundle.errors import InterpreterError
from bundle.interpreter import Interpreter
from bundle.tree import Entry, Tree, read_entry

_DROPPED_ANYWHERE = frozenset({"__pycache__", "test", "tests"})
_TERMINALS = "cmd code codeop curses idlelib pty rlcompleter tkinter turtle turtledemo webbrowser"
_TOOLS = """
    bdb cProfile compileall doctest ensurepip lib2to3 modulefinder pdb pickletools profile pstats
    py_compile pyclbr pydoc pydoc_data symtable tabnanny timeit trace unittest venv zipapp
"""
_PROTOCOLS = """
    asynchat asyncore cgi cgitb ftplib imaplib mailbox mailcap nntplib poplib smtpd smtplib
    telnetlib wsgiref xmlrpc
"""
_FORMATS = """
    aifc chunk colorsys dbm imghdr plistlib shelve sndhdr sqlite3 sunau uu wave xdrlib xml zoneinfo
"""
_SUPERSEDED = """
    __hello__ __phello__ antigravity crypt dist-packages distutils fileinput imp msilib
    optparse pipes site-packages this _aix_support _bootsubprocess _osx_support _pyio
"""
_OTHERS = "filecmp graphlib multiprocessing sched statistics"
_SITE = "sitecustomize usercustomize"  # Debian's is a link into /etc
_DROPPED_AT_TOP = frozenset(
    " ".join((_TERMINALS, _TOOLS, _PROTOCOLS, _FORMATS, _SUPERSEDED, _OTHERS, _SITE)).split()
)
_DROPPED_EXTENSIONS = re.compile(
    r"_tkinter|_sqlite3|_curses.*|readline|_gdbm|_dbm|_crypt|nis|spwd|ossaudiodev|audioop"
    r"|_codecs_.*|_multibytecodec|_elementtree|pyexpat|_lsprof|_multiprocessing|_posixshmem"
    r"|_statistics|_zoneinfo|_test.*|.*_test|_?xx.*"
)
_DROPPED_CODECS = re.compile(
    r"big5.*|cp\d+|euc_.*|gb.*|hp_roman8|hz|iso2022.*|iso8859.*|johab|koi8.*|kz1048|mac_.*|mbcs|oem"
    r"|palmos|ptcp154|shift_.*|tis_620"
)
_KEPT_CODECS = frozenset({"cp437", "cp1252", "iso8859_1"})  # of archives and of the web
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


def left_out(interpreter: Interpreter, tree: Tree) -> frozenset[str]:
    """The top modules of the standard library that a release with `tree` has not."""
    library = f"python/lib/python{interpreter.version}/"
    names = (name.removeprefix(library) for name in tree if name.startswith(library))
    kept = {_module(Path(name.removeprefix(f"{_EXTENSIONS}/"))) for name in names}
    folders = (interpreter.stdlib, interpreter.stdlib / _EXTENSIONS)
    found = (path for folder in folders if folder.is_dir() for path in folder.iterdir())
    return frozenset(_module(Path(path.name)) for path in found) - kept


def _module(path: Path) -> str:
    return path.parts[0].partition(".")[0]


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
    module = path.name.partition(".")[0]
    if path.suffix == ".py":
        if path.parent.name == "encodings" and module not in _KEPT_CODECS:
            return not _DROPPED_CODECS.fullmatch(module)
        return not (top and module in _DROPPED_AT_TOP)
    in_place = path.parent.name == _EXTENSIONS and path.suffix == ".so"
    return in_place and not _DROPPED_EXTENSIONS.fullmatch(module)
