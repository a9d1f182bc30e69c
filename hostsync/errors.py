"""What can go wrong, told apart by who can mend it, and the exit status of each.

    HostsyncError
    ├── ConfigError      the configuration or the command line is wrong           exit 2
    ├── Refused          preflight says no; nothing was changed                   exit 3
    ├── Busy             another order or verb holds the host                     exit 4
    └── Failed           it went wrong before the switch; nothing was changed     exit 1
        ├── DiskError    the filesystem refused an operation
        ├── FetchError   a download did not come to its end; `cause` tells why
        ├── UnitsError   systemd refused or did not answer
        ├── MachineError machined, a machine's rootfs or a command in it failed
        └── ClusterError the Kubernetes API refused or did not answer; `cause` tells why

A verdict is no error: an order that was rolled back (exit 5) or could not even be restored
(exit 6) ends as a line of history. Every error carries `code` (for machines), a brief, facts and
a remedy (for people). The exit statuses are those of the command line and of the reasons that an
operation's status gives.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """Exit statuses of every command, stable across releases."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    BUSY = 4
    ROLLED_BACK = 5
    NOT_RESTORED = 6
    IN_PROGRESS = 7


class Reason(StrEnum):
    """Why preflight refused; the word is stable and appears in JSON output."""

    NOT_ROOT = "not-root"
    NOT_INSTALLED = "not-installed"
    BAD_CANDIDATE = "bad-candidate"
    WRONG_ARCHITECTURE = "wrong-architecture"
    IN_THE_WAY = "in-the-way"
    SLOT_ALIAS = "slot-alias"
    NOT_OURS = "not-ours"
    NO_SPACE = "no-space"
    READ_ONLY = "read-only"
    NO_EXEC = "noexec"
    KNOWN_BAD = "known-bad"
    CANDIDATE_FAILS = "candidate-fails"
    MACHINE_UNREADY = "machine-unready"
    NO_LAST_GOOD = "no-last-good"
    RECORD_UNREADABLE = "record-unreadable"
    UNTRUSTED_SOURCE = "untrusted-source"
    DOWNGRADE = "downgrade"


class FetchCause(StrEnum):
    """Why a download failed; the word is stable."""

    DNS = "dns"
    CONNECT = "connect"
    PROXY = "proxy"
    TLS = "tls"
    STATUS = "status"
    REDIRECT = "redirect"
    PROTOCOL = "protocol"
    STALLED = "stalled"
    TOO_SLOW = "too-slow"
    TOO_LARGE = "too-large"
    CUT_SHORT = "cut-short"


class ClusterCause(StrEnum):
    """Why the Kubernetes API did not do what it was asked; the word is stable."""

    CREDENTIAL = "credential"
    """There is no usable credential or kubeconfig to ask with."""

    UNREACHABLE = "unreachable"
    """No answer, or one that says to come back later."""

    DENIED = "denied"
    NO_KIND = "no-kind"
    """The server does not know MachineOperations (yet)."""

    NO_FIELD = "no-field"
    """The server cannot select by `spec.machineRef`."""

    EXPIRED = "expired"
    """The version to go on from is too old: list again."""

    CONFLICT = "conflict"
    GONE = "gone"
    REJECTED = "rejected"
    """Any other refusal, or an answer that makes no sense."""


class HostsyncError(Exception):
    """Root of all errors that hostsync raises on purpose.

    `brief` is one sentence that names the object; `remedy` says what to do about it.
    """

    code = "error"
    exit_code = ExitCode.FAILED

    def __init__(self, brief: str, *, remedy: str = "") -> None:
        super().__init__(brief)
        self.brief = brief
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.brief}; {self.remedy}" if self.remedy else self.brief


class ConfigError(HostsyncError):
    """The configuration file or the command line cannot be used."""

    code = "configuration"
    exit_code = ExitCode.USAGE


class Refused(HostsyncError):
    """Preflight refused the order; nothing was changed."""

    code = "refused"
    exit_code = ExitCode.REFUSED

    def __init__(self, reason: Reason, brief: str, *, remedy: str = "") -> None:
        super().__init__(brief, remedy=remedy)
        self.reason = reason


class Busy(HostsyncError):
    """Somebody else holds the host's lock or an upgrade is in flight."""

    code = "busy"
    exit_code = ExitCode.BUSY


class Failed(HostsyncError):
    """The order failed before the switch; the host is as it was."""

    code = "failed"


class DiskError(Failed):
    """The filesystem refused an operation."""

    code = "disk"


class FetchError(Failed):
    """A download did not come to its end; nothing was kept of it."""

    code = "fetch"

    def __init__(self, cause: FetchCause, brief: str, *, remedy: str = "") -> None:
        super().__init__(brief, remedy=remedy)
        self.cause = cause


class UnitsError(Failed):
    """Systemd refused a request, or did not answer in time."""

    code = "units"


class MachineError(Failed):
    """A machine could not be reached, written to, or run in."""

    code = "machine"


class ClusterError(Failed):
    """The Kubernetes API did not do what it was asked; it is tried again.

    `wait` is how many seconds the server wants to be left alone, 0 when it did not say.
    """

    code = "cluster"

    def __init__(
        self, cause: ClusterCause, brief: str, *, remedy: str = "", wait: float = 0.0
    ) -> None:
        super().__init__(brief, remedy=remedy)
        self.cause = cause
        self.wait = wait
