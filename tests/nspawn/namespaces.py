"""Mounts that only a test sees: a thread in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def in_mount_namespace(act: Callable[[], T]) -> T:
    """Call `act` in a thread whose mounts nobody else sees and which vanish with it."""

    def apart() -> T:
        _check(_libc.unshare(_CLONE_NEWNS))
        _mount("none", Path("/"), "", _MS_REC | _MS_PRIVATE)
        return act()

    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(apart).result()


def mount_tmpfs(path: Path, size: int) -> None:
    _mount("none", path, "tmpfs", 0, f"size={size}")


def bind(source: Path, path: Path, *, read_only: bool = False) -> None:
    _mount(str(source), path, "", _MS_BIND)
    if read_only:
        _mount("none", path, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY)


def _mount(source: str, path: Path, kind: str, flags: int, options: str = "") -> None:
    _check(
        _libc.mount(
            source.encode(),
            bytes(path),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        )
    )


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
