"""What can go wrong with a machine, as one tree.

    NspawnError
    ├── NoSuchMachine        no such machine, or it is gone
    ├── MachineUnreachable   the machine is there but its service manager does not answer
    ├── BusUnavailable       the system bus or machined does not answer
    ├── BindRefused          machined refused a bind; `.reason` says why
    ├── ViewUnstable         mounts changed faster than they could be read
    ├── UnsafePath           a link, a device, a mount point or a bad name where none may be
    │   └── Occupied         the name is taken, and this verb does not replace
    ├── TooLarge             more bytes or entries than the caller allows
    ├── RootfsError          the filesystem refused an operation
    │   └── NoSpace          it is full, or a quota is used up
    ├── BadBind              a path that a settings file cannot express
    ├── SettingsUntrusted    only a settings file beside the image exists; ours would shadow it
    ├── CommandTimeout       a command inside a machine missed its deadline and was killed
    └── OutputLimit          a command inside a machine wrote more than allowed and was killed

A path that is plainly not there is the built-in FileNotFoundError.
"""

from __future__ import annotations

from enum import StrEnum


class NspawnError(Exception):
    """Root of the errors of this package.

    `code` is stable and meant for machines; `brief` names the object; `remedy` says what to do.
    """

    code = "nspawn"

    def __init__(self, brief: str, *, remedy: str = "") -> None:
        super().__init__(brief)
        self.brief = brief
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.brief}; {self.remedy}" if self.remedy else self.brief


class NoSuchMachine(NspawnError):
    """The machine is not there, or ended while it was looked at."""

    code = "no-such-machine"

    def __init__(self, name: str, brief: str = "is not running") -> None:
        super().__init__(f"machine {name!r} {brief}", remedy="see `machinectl list`")
        self.name = name


class MachineUnreachable(NspawnError):
    """The machine runs, but its service manager took no command (booting, or its bus is down)."""

    code = "machine-unreachable"


class BusUnavailable(NspawnError):
    """The system bus or machined did not answer; whether a call took effect is unknown."""

    code = "bus-unavailable"


class BindReason(StrEnum):
    """Why a bind was refused."""

    USER_NAMESPACE = "user-namespace"
    PROPAGATION = "propagation"
    DESTINATION_IS_LINK = "destination-is-link"
    NOT_A_CONTAINER = "not-a-container"
    SOURCE_MISSING = "source-missing"
    OTHER = "other"


class BindRefused(NspawnError):
    """The directory could not be bound into the machine; nothing was mounted."""

    code = "bind-refused"

    def __init__(self, brief: str, *, reason: BindReason, remedy: str = "") -> None:
        super().__init__(brief, remedy=remedy)
        self.reason = reason


class ViewUnstable(NspawnError):
    """The machine's mount table changed during each of several looks."""

    code = "view-unstable"


class UnsafePath(NspawnError):
    """Something is where only a plain directory or regular file may be; it was not touched."""

    code = "unsafe-path"


class Occupied(UnsafePath):
    """The name exists already, and the verb does not replace."""

    code = "occupied"


class TooLarge(NspawnError):
    """A file or tree has more bytes or entries than the caller allows."""

    code = "too-large"


class RootfsError(NspawnError):
    """The filesystem beneath a rootfs refused an operation."""

    code = "rootfs"


class NoSpace(RootfsError):
    """The filesystem beneath a rootfs is full, or a quota is used up."""

    code = "no-space"


class BadBind(NspawnError):
    """A path or an owner's name that a settings file cannot express."""

    code = "bad-bind"


class SettingsUntrusted(NspawnError):
    """Only an untrusted settings file exists; a trusted one would replace it as a whole."""

    code = "settings-untrusted"


class CommandTimeout(NspawnError):
    """The command missed its deadline; it was killed and its unit stopped."""

    code = "command-timeout"


class OutputLimit(NspawnError):
    """The command wrote more than allowed; it was killed and its unit stopped."""

    code = "output-limit"
