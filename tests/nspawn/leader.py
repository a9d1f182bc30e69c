"""A process that stands for a machine's init: its own mounts, its own root, doing nothing.

Run as `python leader.py ROOT [SOURCE DESTINATION ro|rw]...`: in a new mount namespace it makes
ROOT a mount, binds each SOURCE at DESTINATION beneath it, makes ROOT its root, prints a line, and
ends when its input does.
"""

from __future__ import annotations

import ctypes
import os
import sys

_CLONE_NEWNS = 0x00020000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mount(source: str, target: str, flags: int) -> None:
    _checked(_libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


def main(root: str, binds: list[str]) -> None:
    """Become the leader of a machine with this root."""
    _checked(_libc.unshare(_CLONE_NEWNS))
    _mount("none", "/", _REC | _PRIVATE)
    _mount(root, root, _BIND)
    for source, destination, access in zip(binds[::3], binds[1::3], binds[2::3], strict=True):
        _mount(source, root + destination, _BIND)
        if access == "ro":
            _mount("none", root + destination, _BIND | _REMOUNT | _RDONLY)
    os.chroot(root)
    os.chdir("/")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
