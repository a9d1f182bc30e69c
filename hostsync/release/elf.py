"""The architecture of this host and of ELF files, from the first 20 bytes of a file.

Layout: the System V gABI, "ELF Header": class at 4, byte order at 5, machine at 18.
"""

from __future__ import annotations

import os

from hostsync.errors import Reason, Refused
from hostsync.model import Arch

HEADER_BYTES = 20
"""As many bytes of a file's start tell its architecture."""

_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_MACHINES = {62: Arch.AMD64, 183: Arch.ARM64}
_HOSTS = {"x86_64": Arch.AMD64, "aarch64": Arch.ARM64}


def host_arch() -> Arch:
    """The architecture programs are run for here; raises Refused when there is no release for it.

    It is what uname says, so a 32-bit personality (setarch) is refused, as it should be.
    """
    return machine_arch(os.uname().machine)


def machine_arch(machine: str) -> Arch:
    """The architecture that uname calls `machine`; raises Refused when it has no release."""
    if machine not in _HOSTS:
        brief = f"this host: architecture {machine} has no release"
        remedy = f"run on one of {', '.join(_HOSTS)}"
        raise Refused(Reason.WRONG_ARCHITECTURE, brief, remedy=remedy)
    return _HOSTS[machine]


def read_arch(header: bytes) -> Arch | None:
    """The architecture of the ELF file that starts so; None when it is no ELF file.

    Raises ValueError, saying what it is instead, for an ELF file of any other kind.
    """
    if not header.startswith(_MAGIC):
        return None
    if len(header) < HEADER_BYTES:
        raise ValueError("an ELF file cut short")
    if header[4] != _CLASS_64 or header[5] != _LITTLE_ENDIAN:
        raise ValueError("not a 64-bit little-endian ELF file")
    machine = int.from_bytes(header[18:20], "little")
    if machine not in _MACHINES:
        raise ValueError(f"an ELF file for machine {machine}")
    return _MACHINES[machine]
