"""What the configuration says of machines: which are workers, and what each may be given.

The table `[machines]` of the file; `config` puts it into the whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Which nspawn machines are workers to keep in step, and how far to trust them.

    With `credential_copy` a machine that cannot have the host's credential bound gets a copy.
    """

    include: tuple[str, ...] = ("kube*",)
    mirror_only: tuple[str, ...] = ()
    root: Path = Path("/var/lib/machines")
    check_seconds: float = 60.0
    credential_copy: bool = False

    def is_worker(self, name: str) -> bool:
        """Whether a machine of that name is one to keep in step."""
        return any(fnmatchcase(name, pattern) for pattern in self.include)


class MachinesTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The table `[machines]`."""

    include: tuple[str, ...] = ("kube*",)
    mirror_only: tuple[str, ...] = ()
    root: str = "/var/lib/machines"
    check_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0
    credential_copy: bool = False
