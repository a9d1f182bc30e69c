"""Takes the runtime dependencies from the building environment, as pip installed them there."""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bundle.errors import PackageError
from bundle.source import PACKAGE_FOLDER
from bundle.tree import Entry, join, read_entry

_UNUSED = frozenset({"anyio", "h2", "pycparser", "wsproto"})
"""What HTTP libraries import wherever they find it, to offer asynchronous transports, HTTP/2 and
WebSockets: nothing here speaks these, and an idle daemon is 1.8 MiB smaller without them. And what
only compiles bindings to C: cryptography brings its own ready-made, and needs cffi's extension."""

LEFT_OUT = _UNUSED | {"cffi"}
"""Modules of distributions that no release has."""

_DROPPED_FOLDERS = frozenset({"__pycache__", "test", "tests"})
_DROPPED_SUFFIXES = frozenset({".pyc", ".pyi", ".c", ".h", ".pxd", ".pyx"})
_KEPT_METADATA = re.compile(r"METADATA|LICEN[CS]E.*|COPYING.*|NOTICE.*|AUTHORS.*", re.IGNORECASE)


def requirements(source: Path) -> tuple[Requirement, ...]:
    """What `[project.dependencies]` of the source tree's pyproject.toml asks for."""
    path = source / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        return tuple(Requirement(line) for line in project.get("dependencies", ()))
    except (OSError, KeyError, ValueError) as error:
        raise PackageError(
            f"cannot read the dependencies in {path}: {error}",
            remedy="name the source tree with --source",
        ) from error


def resolve(
    wanted: Sequence[Requirement], search: Sequence[str] | None = None
) -> dict[str, Distribution]:
    """Every distribution that the requirements lead to, by canonical name, in order of name.

    Those that would be imported and never used are left out, with what only they require.
    `search` is a path as in `sys.path`, which is the default. Raises `PackageError` for one that
    is not installed, or installed in a version that does not satisfy the requirement.
    """
    found: dict[str, Distribution] = {}
    asked: set[str] = set()
    pending = list(wanted)
    while pending:
        requirement = pending.pop()
        if str(requirement) in asked:
            continue
        asked.add(str(requirement))
        name = canonicalize_name(requirement.name)
        if name in _UNUSED:
            continue
        found[name] = _installed(requirement, sys.path if search is None else search)
        pending += _further(found[name], requirement.extras)
    return dict(sorted(found.items()))


def collect(distributions: dict[str, Distribution]) -> dict[str, Entry]:
    """The files of the distributions under their names in a release, licences included."""
    return join(_files(name, distribution) for name, distribution in distributions.items())


def _installed(requirement: Requirement, search: Sequence[str]) -> Distribution:
    found = next(iter(Distribution.discover(name=requirement.name, path=list(search))), None)
    if found is None or not requirement.specifier.contains(found.version, prereleases=True):
        state = "not installed" if found is None else f"installed as {found.version}"
        raise PackageError(
            f"the dependency {requirement} is {state}",
            remedy=f"run {sys.executable} -m pip install '{requirement}'",
        )
    return found


def _further(distribution: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution itself requires here, with the extras it was asked for."""
    for line in distribution.requires or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise PackageError(
                f"{distribution.metadata['Name']} has an unreadable requirement {line!r}",
                remedy="install another version of it",
            ) from error
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _files(name: str, distribution: Distribution) -> dict[str, Entry]:
    tree: dict[str, Entry] = {}
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if _keeps(PurePosixPath(file)) and path.is_file():
            tree[f"{PACKAGE_FOLDER}/{file.as_posix()}"] = read_entry(path)
    if not any(file.endswith((".py", ".so")) for file in tree):
        raise PackageError(
            f"the distribution {name} lists no modules of its own",
            remedy="install it from a wheel, not as an editable checkout or a system package",
        )
    return tree


def _keeps(file: PurePosixPath) -> bool:
    if file.is_absolute() or ".." in file.parts or _DROPPED_FOLDERS & set(file.parts):
        return False
    if file.parts[0].endswith(".dist-info"):
        return _KEPT_METADATA.fullmatch(file.name) is not None
    return file.parts[0] not in LEFT_OUT and file.suffix not in _DROPPED_SUFFIXES
