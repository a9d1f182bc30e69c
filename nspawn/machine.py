"""A machine as a value: its name, its leader process and what its rootfs is.

Facts it rests on: a process id can be reused, so the leader's start time goes with it. machined's
RootDirectory is a mere string: for an image or an ephemeral machine it names something that the
host cannot write to, so it is believed only when it is the very directory the leader has as root.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from nspawn.errors import NoSuchMachine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A running machine at the time it was asked for.

    `leader` is its init in the host's process ids, `leader_start` that process's start time in
    clock ticks since boot. `root` is the rootfs as a directory of the host, or None when it is
    none that the host can write to (an image, an ephemeral copy, a volatile root).
    `user_namespace` tells whether its root is another user than the host's.
    """

    name: str
    leader: int
    leader_start: int
    root: Path | None
    unit: str
    state: str
    class_: str
    user_namespace: bool


def checked_name(name: str) -> str:
    """The name itself when it is one of a machine; raises NoSuchMachine otherwise.

    The rule is machined's. It keeps `.host` and `user@machine` out, which mean something else
    to systemd's tools, and anything with a slash.
    """
    if not _NAME.fullmatch(name):
        raise NoSuchMachine(name, "cannot be: that is no machine name")
    return name


def start_time(stat_line: bytes) -> int:
    """The start time in clock ticks since boot, out of the content of /proc/PID/stat."""
    # The command name may hold spaces and parentheses, so counting begins after the last one.
    return int(stat_line.rpartition(b")")[2].split()[19])


def writable_root(directory: str, leader: int) -> Path | None:
    """`directory` when it is the root that the process `leader` has, and not a temporary copy."""
    path = Path(directory)
    if not path.is_absolute() or any(part.startswith(".#") for part in path.parts):
        return None
    try:
        same = os.path.samestat(path.stat(), os.stat(f"/proc/{leader}/root/."))
    except OSError:
        return None
    return path if same else None


def in_user_namespace(leader: int) -> bool:
    """Whether `leader` lives in another user namespace than this process.

    Namespaces are compared, not the uid map: root in a namespace with an identity map still
    lacks the host's privileges. What cannot be read counts as another namespace. The host's
    init is no measure: a service with fewer capabilities than that may not look at it.
    """
    try:
        theirs, ours = os.stat(f"/proc/{leader}/ns/user"), os.stat("/proc/self/ns/user")
    except PermissionError:
        return True
    return not os.path.samestat(theirs, ours)
