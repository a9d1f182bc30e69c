"""Takes the three packages from the source tree, stamped with the release's version."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bundle.errors import OptionError, PackageError
from bundle.tree import Entry, read_entry

PACKAGES = ("hostsync", "nspawn", "credential_shim")
PACKAGE_FOLDER = "lib/hostsync"
VERSIONED = ("hostsync", "credential_shim")
"""The packages whose `_version.py` says which release this is."""

_VERSION = re.compile(
    r"\d+(\.\d+){1,3}((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)
_DROPPED = frozenset({"__pycache__", "test", "tests"})


def check_version(version: str) -> str:
    """The version itself; raises `OptionError` unless it is a public or local PEP 440 version."""
    if len(version) > 64 or not _VERSION.fullmatch(version):
        raise OptionError(f"{version!r} is not a version", remedy="use a form like 1.2.3 or 1.2rc1")
    return version


def read_version(source: Path) -> str:
    """The version that the source tree itself has."""
    path = source / "hostsync" / "_version.py"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise PackageError(
            f"cannot read {path}: {error.strerror}", remedy="name the source tree with --source"
        ) from error
    return check_version(str(_version_node(text, str(path)).value))


def stamp(text: str, version: str, *, name: str) -> str:
    """The text of a `_version.py` with another VERSION; all else (PROTOCOL above all) stays.

    Raises `PackageError` when the module does not assign VERSION exactly one string.
    """
    node = _version_node(text, name)
    lines = text.splitlines(keepends=True)
    row = node.lineno - 1
    line = lines[row].encode()
    literal = f'"{check_version(version)}"'.encode()
    lines[row] = (line[: node.col_offset] + literal + line[node.end_col_offset :]).decode()
    return "".join(lines)


def version_files() -> tuple[str, ...]:
    """Names of the files in a release that carry its version."""
    return tuple(f"{PACKAGE_FOLDER}/{package}/_version.py" for package in VERSIONED)


def collect(source: Path, version: str) -> dict[str, Entry]:
    """The packages' files under their names in a release, with `version` in them.

    Raises `PackageError` for a missing package, a missing `_version.py`, or a link.
    """
    tree: dict[str, Entry] = {}
    for package in PACKAGES:
        found = {
            f"{PACKAGE_FOLDER}/{path.relative_to(source).as_posix()}": read_entry(path)
            for path in _files(source / package)
        }
        if f"{PACKAGE_FOLDER}/{package}/__init__.py" not in found:
            raise PackageError(
                f"{source / package} is not a package", remedy="name the source tree with --source"
            )
        tree |= found
    for name in version_files():
        if name not in tree:
            raise PackageError(
                f"the source tree lacks {name.removeprefix(PACKAGE_FOLDER + '/')}",
                remedy="restore it: a release says its version there",
            )
        text = stamp(tree[name].content.decode(), version, name=name)
        tree[name] = Entry(content=text.encode())
    return tree


def _files(package: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name not in _DROPPED)
        for path in (Path(folder, name) for name in sorted([*files, *folders])):
            if path.is_symlink():
                raise PackageError(
                    f"{path} is a link", remedy="a release holds none: replace it by a copy"
                )
            if path.is_file() and not path.name.startswith(".") and path.suffix != ".pyc":
                yield path


def _version_node(text: str, name: str) -> ast.Constant:
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise PackageError(f"{name} does not parse: {error}", remedy="correct it") from error
    found = [
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == ["VERSION"]
        and isinstance(node.value, ast.Constant)
    ]
    if len(found) != 1 or not isinstance(found[0].value, str) or "\n" in ast.unparse(found[0]):
        raise PackageError(
            f"{name} does not assign VERSION one string", remedy='write one line VERSION = "1.2.3"'
        )
    return found[0]
