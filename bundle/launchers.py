"""Writes the programs in `bin/`: shell scripts that find their release and start its Python.

Any /bin/sh will do (dash, bash, busybox), and on the way that hosts use no other program is run.
A launcher is started by its own path, through the compatibility link `/usr/local/bin/NAME`, or
through any other link. It pins the *physical* release directory before anything of the release is
loaded, so a link that is switched a moment later cannot mix two releases in one process; that the
directory is the right one is checked by the identity of the launcher in it, not by names.

The interpreter is isolated from the environment (-I) and from site packages (-S), writes no
bytecode (-B), because a release that changes no longer matches its seal, and takes names and text
for UTF-8 (-X utf8) whatever the locale is: a release has the codecs of few others.
"""

from collections.abc import Mapping

from bundle.bytecode import compiled_name
from bundle.errors import PackageError
from bundle.source import PACKAGE_FOLDER
from bundle.tree import Entry, Tree

MAIN_HOSTSYNC = f"{PACKAGE_FOLDER}/main_hostsync.py"
MAIN_CREDENTIAL = f"{PACKAGE_FOLDER}/credential_shim/__main__.py"
"""The source of what Python runs for each launcher, relative to the release. kubelet waits for the
second."""

LAUNCHERS: Mapping[str, str] = {
    "hostsync": MAIN_HOSTSYNC,
    "hostsync-credential": MAIN_CREDENTIAL,
}

_LAUNCHER = """\
#!/bin/sh
# Starts @NAME@ with the Python of the release directory that this file is in.

# Nobody else's libraries belong into this process: the release brings its own.
unset LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT

# A bare name is a file here (`sh @NAME@`, or an empty entry in PATH), or else one found in PATH.
self=$0
case $self in
    */*) ;;
    *) [ -f "./$self" ] || self=$(command -v -- "$self") ;;
esac
# An absolute or dotted path can be neither an option nor subject to CDPATH.
case $self in
    /*) ;;
    *) self=./$self ;;
esac

# Sets `release` to the directory $1 without links, provided that it is this launcher's own: a
# release holds the launcher itself, not a link to it as /usr/local does. (A closed stderr instead
# of /dev/null: not every root has one.)
pin() {
    release=$(cd -P "$1" 2>&- && pwd -P) &&
        [ ! -L "$release/bin/@NAME@" ] &&
        [ "$release/bin/@NAME@" -ef "$self" ]
}

# In turn: the file itself, the compatibility link to the current release, any other link.
pin "${self%/*}/.." ||
    pin "${self%/*}/../lib/hostsync/current" ||
    {
        target=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin && readlink -f "$self") &&
            pin "${target%/*}/.."
    } || {
        echo "@NAME@: $self is neither in a release directory nor a link into one;" \\
            "link it to bin/@NAME@ of the release" >&2
        exit 127
    }

exec "$release/python/bin/python@VERSION@" -I -S -B -X utf8 "$release/@MAIN@" "$@"
"""

_MAIN_HOSTSYNC = """\
import sys

# The packages come last: nothing installed here can take the place of a standard module.
sys.path.append(__file__.rpartition("/")[0])

from hostsync.cli import entry

sys.exit(entry())
"""


def write_launchers(tree: Tree, version: str) -> dict[str, Entry]:
    """The launchers, and what they start where no package has it.

    `version` is Python's. Raises `PackageError` when the program of a launcher is not in the tree.
    """
    written = {MAIN_HOSTSYNC: Entry(content=_MAIN_HOSTSYNC.encode())}
    for name, main in LAUNCHERS.items():
        if main not in tree and main not in written:
            raise PackageError(
                f"the source tree has no {main.removeprefix(PACKAGE_FOLDER + '/')}, "
                f"which the launcher {name} runs",
                remedy="restore it, or change the launcher",
            )
        written[f"bin/{name}"] = Entry(content=_text(name, main, version), executable=True)
    return written


def _text(name: str, main: str, version: str) -> bytes:
    text = _LAUNCHER
    parts = {"@NAME@": name, "@MAIN@": compiled_name(main), "@VERSION@": version}
    for key, value in parts.items():
        text = text.replace(key, value)
    return text.encode()
