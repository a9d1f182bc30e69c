"""Removing what a hostile owner may have put there: any kind, any depth, any link.

Facts it rests on: unlink(2) never follows a link and answers EISDIR for a directory; a mount
point answers EBUSY to unlink, rmdir and rename; openat2 with RESOLVE_NO_XDEV does not cross one,
bind mounts of the same filesystem included, which comparing st_dev would miss.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import PurePath

from nspawn._copying import PLAIN
from nspawn._linux import Resolve, openat2, rename_noreplace
from nspawn._refusal import NOT_PLAIN, unsafe
from nspawn.errors import RootfsError

_LEVELS = 32
_PASSES = 16
_SAME_MOUNT = PLAIN | Resolve.NO_XDEV


class Removal:
    """Removes names from one directory, using new names there for what is half removed.

    `directory` is its descriptor, `what` its path in errors, `new_name` makes unique names
    which a later sweep recognises.
    """

    def __init__(self, directory: int, what: PurePath, new_name: Callable[[], str]) -> None:
        self._directory = directory
        self._what = what
        self._new_name = new_name
        self._graves: list[str] = []

    def remove(self, name: str) -> None:
        """Remove `name` and all beneath it; nothing there is fine.

        A directory first moves to a temporary name, so that nobody sees it half removed.
        Raises UnsafePath at a mount point, RootfsError when entries appear faster than they
        can be removed, OSError.
        """
        if self._unlinked(self._directory, name):
            return
        self._bury(self._directory, name)
        while self._graves:
            self._clear(self._directory, self._graves.pop(), _LEVELS)

    def _bury(self, directory: int, name: str) -> None:
        """Move a directory up to a temporary name, to be cleared from there."""
        grave = self._new_name()
        try:
            rename_noreplace(directory, name, self._directory, grave)
        except FileNotFoundError:
            return
        except OSError as e:
            # overlayfs cannot move a directory of its lower layer; it is cleared in place.
            if e.errno == errno.EXDEV and directory == self._directory:
                grave = name
            elif e.errno == errno.EBUSY:
                raise unsafe(self._what / name, "it is a mount point") from e
            else:
                raise
        self._graves.append(grave)

    def _clear(self, parent: int, name: str, levels: int) -> None:
        """Empty the directory `name` and remove it; it may vanish meanwhile."""
        try:
            directory = openat2(parent, name, os.O_RDONLY | os.O_DIRECTORY, resolve=_SAME_MOUNT)
        except FileNotFoundError:
            return
        except OSError as e:
            if e.errno in NOT_PLAIN:
                raise unsafe(self._what / name, "it turned into a link or a mount point") from e
            raise
        try:
            for _ in range(_PASSES):
                self._empty(directory, levels)
                try:
                    os.rmdir(name, dir_fd=parent)
                except FileNotFoundError:
                    return
                except OSError as e:
                    if e.errno != errno.ENOTEMPTY:
                        raise
                else:
                    return
        finally:
            os.close(directory)
        raise RootfsError(
            f"{self._what / name} fills faster than it can be removed",
            remedy="stop what writes there",
        )

    def _empty(self, directory: int, levels: int) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                if self._unlinked(directory, entry.name):
                    continue
                # Any depth is removed with few descriptors: what lies too deep is moved up.
                if levels == 0:
                    self._bury(directory, entry.name)
                else:
                    self._clear(directory, entry.name, levels - 1)

    def _unlinked(self, directory: int, name: str) -> bool:
        """Whether `name` is gone now; False means it is a directory."""
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return True
        except IsADirectoryError:
            return False
        except OSError as e:
            if e.errno == errno.EBUSY:
                raise unsafe(self._what / name, "it is a mount point") from e
            raise
        return True
