"""Why machined refuses a bind.

Its error names are coarse and its texts differ between versions: "InvalidArgs" stands for a
link at the destination, a directory bound onto a file, and, on systemd 252, for a machine
without mount propagation. So the facts are looked up where they can be.
"""

from __future__ import annotations

import stat
from pathlib import Path

from nspawn import view
from nspawn._bus import CallFailed
from nspawn.errors import BindReason, BindRefused, NspawnError
from nspawn.machine import Machine

_DBUS_ERROR = "org.freedesktop.DBus.Error."
_REMEDIES = {
    BindReason.USER_NAMESPACE: "machined binds only without PrivateUsers=; use a copy instead",
    BindReason.PROPAGATION: "run `mount --make-rshared /` on the host, then restart the machine",
    BindReason.DESTINATION_IS_LINK: "bind at the path that the link leads to",
    BindReason.NOT_A_CONTAINER: "only containers can be bound into",
    BindReason.SOURCE_MISSING: "create it first",
    BindReason.OTHER: "see the journal of systemd-machined",
}


def check(source: Path, destination: Path) -> None:
    """Raise BindRefused for what machined would answer ambiguously."""
    if not source.is_absolute() or not destination.is_absolute() or ".." in destination.parts:
        raise BindRefused(
            f"cannot bind {source} at {destination}",
            reason=BindReason.OTHER,
            remedy="give absolute paths without ..",
        )
    if not source.exists():
        raise _refusal(BindReason.SOURCE_MISSING, f"cannot bind {source}: it does not exist")


def refused(machine: Machine, source: Path, destination: Path, cause: CallFailed) -> BindRefused:
    """The error for machined's answer `cause`, with the reason looked up."""
    brief = f"cannot bind {source} at {destination} in machine {machine.name!r}: {cause.text}"
    return _refusal(_reason(machine, source, destination, cause), brief)


def _reason(machine: Machine, source: Path, destination: Path, cause: CallFailed) -> BindReason:
    match cause.name.removeprefix(_DBUS_ERROR):
        case "NotSupported" if "propagation" in cause.text:
            return BindReason.PROPAGATION
        case "NotSupported" if machine.class_ != "container":
            return BindReason.NOT_A_CONTAINER
        case "NotSupported":
            return BindReason.USER_NAMESPACE
        case "FileNotFound" if not source.exists():
            return BindReason.SOURCE_MISSING
        case "InvalidArgs":
            return _invalid(machine, source, destination)
    return BindReason.OTHER


def _invalid(machine: Machine, source: Path, destination: Path) -> BindReason:
    try:
        mode = view.mode(machine, destination)
        if mode is not None and stat.S_ISLNK(mode):
            return BindReason.DESTINATION_IS_LINK
        if mode is not None and stat.S_ISDIR(mode) != source.is_dir():
            return BindReason.OTHER
    except (NspawnError, OSError):
        return BindReason.OTHER
    return BindReason.PROPAGATION


def _refusal(reason: BindReason, brief: str) -> BindRefused:
    return BindRefused(brief, reason=reason, remedy=_REMEDIES[reason])
