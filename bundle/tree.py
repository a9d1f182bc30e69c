"""The content of a release while it is put together: names and bytes, no directories yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bundle.errors import PackageError

Tree = Mapping[str, "Entry"]
"""File name relative to the release directory, with `/`, to what the file holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One regular file of a release.

    `origin` is the file on the building machine whose dependencies the loader can list; it is
    no part of the release, so two entries are equal when their bytes and mode are.
    """

    content: bytes = field(repr=False)
    executable: bool = False
    origin: Path | None = field(default=None, compare=False)

    @property
    def mode(self) -> int:
        """Permission bits in the archive: 0755 for programs, else 0644."""
        return 0o755 if self.executable else 0o644


def read_entry(path: Path, *, executable: bool = False) -> Entry:
    """The entry for a file of the building machine; a link counts as what it points at."""
    return Entry(content=path.read_bytes(), executable=executable, origin=path)


def join(parts: Iterable[Tree]) -> dict[str, Entry]:
    """One tree of several; raises `PackageError` when two of them disagree about a file."""
    joined: dict[str, Entry] = {}
    for part in parts:
        for name, entry in part.items():
            if joined.setdefault(name, entry) != entry:
                raise PackageError(
                    f"two sources give different content for {name}: "
                    f"{joined[name].origin} and {entry.origin}",
                    remedy="build from an environment where each file belongs to one package",
                )
    return joined
