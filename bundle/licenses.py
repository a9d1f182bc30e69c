"""Collects the licences that have to travel with what a bundle redistributes.

Python dependencies carry theirs in their own metadata; here are hostsync's, Python's, and those of
the system's libraries, which Debian keeps one file per package.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from bundle.interpreter import Interpreter, clean_environment
from bundle.libraries import LIBRARY_FOLDER
from bundle.tree import Entry, Tree, read_entry

_FOLDER = "share/licenses"
_DPKG_QUERY = "/usr/bin/dpkg-query"
_DOCUMENTATION = Path("/usr/share/doc")
_QUERY_SECONDS = 30


def collect(tree: Tree, source: Path, interpreter: Interpreter) -> dict[str, Entry]:
    """The licence files that exist here, by their names in a release."""
    named = {
        f"{_FOLDER}/hostsync/LICENSE": source / "LICENSE",
        f"{_FOLDER}/python/LICENSE.txt": interpreter.stdlib / "LICENSE.txt",
    }
    for package in sorted(set(_packages(tree))):
        named[f"{_FOLDER}/{package}/copyright"] = _DOCUMENTATION / package / "copyright"
    return {name: read_entry(path) for name, path in named.items() if path.is_file()}


def _packages(tree: Tree) -> Iterator[str]:
    """The Debian packages that the bundled libraries come from; none on other distributions."""
    libraries = [
        entry.origin.resolve()
        for name, entry in tree.items()
        if entry.origin is not None and name.rpartition("/")[0] == LIBRARY_FOLDER
    ]
    if not libraries or not Path(_DPKG_QUERY).exists():
        return
    # Whole names, since patterns are tried on every file of every package; and without /usr, as
    # packages have them that were made before /lib became a link into it.
    names = [name for path in libraries for name in (str(path), str(path).removeprefix("/usr"))]
    done = subprocess.run(
        [_DPKG_QUERY, "--search", *names],
        env=clean_environment(LC_ALL="C"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_QUERY_SECONDS,
        check=False,  # 1 when some library is no package's
    )
    for line in done.stdout.decode().splitlines():
        package, _, file = line.partition(": ")
        if Path(file).resolve() in libraries:
            yield package.partition(":")[0]
