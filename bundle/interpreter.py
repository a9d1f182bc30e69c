"""Finds the CPython that goes into a bundle, and says where its parts are.

A virtual environment is only a door to an interpreter: what is taken is the interpreter itself,
found through `sys.base_prefix`. Two layouts are known and tested: a prefix of its own with a
shared libpython (pyenv, setup-python) and Debian's (/usr, static, modules beside the library).
"""

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from bundle import elf
from bundle.errors import InterpreterError

_QUERY = """
import importlib.util, json, sys, sysconfig
value = sysconfig.get_config_var
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "cache_tag": sys.implementation.cache_tag,
    "magic": importlib.util.MAGIC_NUMBER.hex(),
    "suffix": value("EXT_SUFFIX"),
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib"),
    "libdir": value("LIBDIR"),
}))
"""
_QUERY_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython installed on the building machine."""

    executable: Path
    """The program itself: no link, no virtual environment."""
    stdlib: Path
    """The directory of `os.py`, with `lib-dynload` in it."""
    libdir: Path
    """Where its own shared library would be."""
    version: str
    """Major and minor, as in `3.11`."""
    magic: bytes
    """The first four bytes of a compiled module."""
    machine: elf.Machine
    loader: Path
    """The dynamic loader that starts it."""


def inspect(python: Path | None = None) -> Interpreter:
    """The interpreter at `python`: a program, a prefix, or None for the one that runs this.

    Raises `InterpreterError` when it is not a dynamically linked CPython of the same minor
    version and ABI as the running one: compiled dependencies come from the running environment.
    """
    facts = _ask(_program(python))
    _check(facts, python)
    executable = (Path(facts["prefix"]) / "bin" / f"python{facts['version']}").resolve()
    try:
        header = elf.parse(executable.read_bytes())
    except OSError as error:
        raise InterpreterError(
            f"cannot read {executable}: {error.strerror}",
            remedy="name another interpreter with --python",
        ) from error
    if header.interpreter is None:
        raise InterpreterError(
            f"{executable} is statically linked and could load no extension module",
            remedy="name another interpreter with --python",
        )
    return Interpreter(
        executable=executable,
        stdlib=Path(facts["stdlib"]),
        libdir=Path(facts["libdir"]),
        version=facts["version"],
        magic=bytes.fromhex(facts["magic"]),
        machine=header.machine,
        loader=Path(header.interpreter),
    )


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment for a build's own child processes: nothing that could change its bytes.

    LD_LIBRARY_PATH stays, because some installed interpreters do not start without it.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {**kept, **extra}


def _program(python: Path | None) -> Path:
    if python is None:
        return Path(sys.executable)
    if not python.is_dir():
        return python
    return python / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def _ask(program: Path) -> dict[str, str]:
    try:
        done = subprocess.run(
            [program, "-I", "-S", "-c", _QUERY],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_QUERY_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InterpreterError(
            f"{program} did not answer as a Python interpreter: {error}",
            remedy="name a CPython program or its prefix with --python",
        ) from error
    return {str(key): str(value) for key, value in answer.items()}


def _check(facts: dict[str, str], python: Path | None) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not facts["cache_tag"].startswith("cpython-") or facts["suffix"] != suffix:
        raise InterpreterError(
            f"{python or sys.executable} loads modules named *{facts['suffix']}, but this "
            f"environment has dependencies built as *{suffix}",
            remedy=f"run the builder with Python {facts['version']} of the same build kind",
        )
