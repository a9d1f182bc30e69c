"""A disk of its own for the lab's engine: a file with ext4 in it, kept in the cache.

An order makes and removes thousands of files, and the filesystem below may be one that finds this
hard: ext4 without a journal, as small virtual machines have it, looks long for an inode that nobody
used in the last seconds. There that was a seventh of a lab's processor time. Ours has a journal, as
the disks of real hosts have.
"""

import subprocess
from pathlib import Path

SIZE = 24 << 30
"""Bytes, at most: the file takes no more of the disk below than was written and not removed."""


def attach(home: Path) -> Path:
    """Return the directory for an engine's data: on a disk of its own where this machine can.

    What is on the disk from before is there again, unless it can't be read: it is a cache.
    """
    place, image = home / "disk", home / "disk.img"
    place.mkdir(exist_ok=True)
    if place.is_mount() or _mounts(image, place) or (_formats(image) and _mounts(image, place)):
        return place
    return home / "data"


def detach(home: Path) -> None:
    """Let go of the disk, and give back what the disk below holds of removed files."""
    place = home / "disk"
    if place.is_mount():
        _runs("fstrim", str(place))
        # Lazily: an engine that was killed may have left mounts beneath.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _mounts(image: Path, place: Path) -> bool:
    return image.exists() and _runs("mount", "-o", "loop,noatime", str(image), str(place))


def _formats(image: Path) -> bool:
    draft = image.with_suffix(".draft")
    with draft.open("wb") as file:
        file.truncate(SIZE)
    if not _runs("mkfs.ext4", "-q", "-F", "-m", "0", str(draft)):
        draft.unlink()
        return False
    draft.replace(image)
    return True


def _runs(*command: str) -> bool:
    """Whether a command could be run and ended well."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False
