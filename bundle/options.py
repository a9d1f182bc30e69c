"""What a build is asked for."""

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
EPOCH = 315_532_800
"""The time of every file where SOURCE_DATE_EPOCH names no other: 1980, the first year of zip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """One build. The defaults build the working tree with the interpreter that runs.

    `version` None means the source tree's own; `python` is a program or a prefix, None the running
    one; `keep_tree` is a directory, not there yet, that the unpacked release is left in; `mtime` is
    in Unix seconds. `cache` is a directory for `bundle.cache`, None to work everything out anew;
    it does not change a byte.
    """

    source: Path = REPOSITORY
    output: Path = Path("dist")
    version: str | None = None
    python: Path | None = None
    keep_tree: Path | None = None
    mtime: int = EPOCH
    cache: Path | None = None
