"""A small source tree to bundle, and the releases built from it once for all tests."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import bundle
from bundle.cache import default_directory
from bundle.interpreter import Interpreter, inspect
from bundle.options import REPOSITORY
from tests.extraction import extract

VERSION = "1.0.0"

_VERSION_MODULE = '''"""Which release this is."""

VERSION = "0.1.0"
"""Stamped by the builder."""

PROTOCOL = 7
'''

# The command line of the small source tree: says what it sees, and can be made to wait.
_CLI = """
import json, os, sys

def entry():
    if sys.argv[1:2] == ["wait"]:
        print("ready", flush=True)
        sys.stdin.readline()
    import bz2, ctypes, hashlib, http.client, lzma, socket, ssl, uuid, zlib
    import click, jeepney, msgspec
    from hostsync._version import VERSION
    with open("/proc/self/maps") as maps:
        mapped = sorted({line.split(maxsplit=5)[5].rstrip() for line in maps if "/" in line})
    modules = [getattr(module, "__file__", None) for module in sys.modules.values()]
    print(json.dumps({
        "version": VERSION, "prefix": sys.prefix, "argv": sys.argv[1:], "cwd": os.getcwd(),
        "utf8": sys.flags.utf8_mode,
        "environment": dict(os.environ), "mapped": mapped, "ssl": ssl.OPENSSL_VERSION,
        "sha256": hashlib.sha256(b"").hexdigest(), "json": msgspec.json.encode([1]).decode(),
        "modules": sorted({file for file in modules if file}),
    }))
    return 5 if "fail" in sys.argv else 0
"""

_SHIM = """
import sys
sys.path.append(__file__.rpartition("/credential_shim/")[0])
from credential_shim._version import PROTOCOL, VERSION
print(f"hostsync-credential {VERSION} (protocol {PROTOCOL})")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A release built by the session: its archive, and a tree unpacked from it."""

    archive: Path
    folder: Path
    interpreter: Interpreter


def write_source(root: Path) -> Path:
    """A source tree with the repository's dependencies and stand-ins for its packages."""
    files = {
        "pyproject.toml": (REPOSITORY / "pyproject.toml").read_text(),
        "LICENSE": "Licence of this source tree\n",
        "hostsync/__init__.py": "",
        "hostsync/_version.py": _VERSION_MODULE,
        "hostsync/cli.py": _CLI,
        "hostsync/assets/hostsync.service": "[Unit]\n",
        "nspawn/__init__.py": "",
        "credential_shim/__init__.py": "",
        "credential_shim/_version.py": _VERSION_MODULE,
        "credential_shim/__main__.py": _SHIM,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a release archive and return the release directory in it."""
    with tarfile.open(archive) as members:
        extract(members, folder)
    (top,) = folder.iterdir()
    return top


def _pythons() -> list[Path | None]:
    """The running interpreter, and another one of the same ABI where this machine has one."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    query = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    for place in ("/usr/bin", os.environ["PATH"]):
        found = shutil.which(name, path=place)
        if found is None or Path(found).resolve() == Path(sys.executable).resolve():
            continue
        done = subprocess.run(
            [found, "-I", "-c", query], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == sysconfig.get_config_var("EXT_SUFFIX"):
            return [None, Path(found)]
    return [None]


@pytest.fixture(scope="session", params=_pythons(), ids=lambda path: "other" if path else "own")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One release per kind of interpreter that this machine has, by way of the cache."""
    work = tmp_path_factory.mktemp("built")
    python: Path | None = request.param
    options = bundle.BuildOptions(
        source=write_source(work / "source"),
        output=work / "dist",
        version=VERSION,
        python=python,
        cache=default_directory(os.environ),
    )
    archive = bundle.build(options)
    folder = unpack(archive, work / "unpacked")
    return Built(archive=archive, folder=folder, interpreter=inspect(python))


@pytest.fixture(scope="session")
def own_interpreter() -> Interpreter:
    """The interpreter that runs the tests."""
    return inspect()
