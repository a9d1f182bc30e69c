"""The system calls that Python does not offer, with typed signatures.

openat2(2) has number 437 on every architecture and exists since Linux 5.6; renameat2(2) differs.
The libc is called through `syscall`, since neither glibc 2.36 nor musl wrap both.
"""

from __future__ import annotations

import ctypes
import errno
import os
from enum import IntFlag

_SYS_OPENAT2 = 437
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_RENAME_NOREPLACE = 1
_ATTEMPTS = 64


class Resolve(IntFlag):
    """How openat2 walks a path; see openat2(2)."""

    NO_XDEV = 0x01
    NO_MAGICLINKS = 0x02
    NO_SYMLINKS = 0x04
    BENEATH = 0x08
    IN_ROOT = 0x10


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def openat2(dir_fd: int, path: str, flags: int, *, resolve: Resolve) -> int:
    """Open an existing `path` from `dir_fd` and return a close-on-exec descriptor.

    Raises OSError: ELOOP where a link is met that `resolve` forbids, EXDEV where the walk
    would leave its bounds, ENOSYS on kernels before 5.6.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, int(resolve))
    for _ in range(_ATTEMPTS):
        fd = int(
            _libc.syscall(
                ctypes.c_long(_SYS_OPENAT2),
                ctypes.c_int(dir_fd),
                ctypes.c_char_p(os.fsencode(path)),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
        )
        if fd >= 0:
            return fd
        # The kernel answers EAGAIN when a rename anywhere raced with a bounded walk.
        if ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            break
    raise _failure(path)


def rename_noreplace(old_dir: int, old: str, new_dir: int, new: str) -> None:
    """Rename atomically; raises FileExistsError when `new` exists, OSError otherwise."""
    number = _SYS_RENAMEAT2.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "renameat2 has no known number on this architecture", new)
    result = _libc.syscall(
        ctypes.c_long(number),
        ctypes.c_int(old_dir),
        ctypes.c_char_p(os.fsencode(old)),
        ctypes.c_int(new_dir),
        ctypes.c_char_p(os.fsencode(new)),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    if result != 0:
        raise _failure(old)


def syncfs(fd: int) -> None:
    """Write everything of the filesystem that `fd` is on to disk; raises OSError."""
    if _libc.syncfs(ctypes.c_int(fd)) != 0:
        raise _failure(f"descriptor {fd}")


def _failure(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
