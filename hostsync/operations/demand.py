"""What an operation demands of this host, read from its parameters before anything is done: pure.

Whatever is wrong here is the order's fault, and is said as InvalidParameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from hostsync.config import Config
from hostsync.errors import ConfigError, Refused
from hostsync.model import Digest
from hostsync.operations.operation import Kind, Operation
from hostsync.operations.report import Cause, Report, failed
from hostsync.release.setback import Terms
from hostsync.release.url import DownloadUrl

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_YES, _NO = "true", "false"


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """Switch an agent to the release at a URL."""

    agent: str
    url: DownloadUrl
    digest: Digest
    allow_known_bad: bool = False


class Reboot(msgspec.Struct, frozen=True, kw_only=True):
    """Restart a worker machine; without a name the one that runs."""

    machine: str = ""


Demand = Upgrade | Reboot
Say = Callable[[str], None]
"""Takes how far carrying out a demand has come, in words for the operation's status."""


def demand_of(operation: Operation, config: Config) -> Demand | Report:
    """What is to be done, or the report that it cannot be."""
    try:
        match operation.kind:
            case Kind.AGENT_UPGRADE:
                return _upgrade(operation, config)
            case Kind.NODE_REBOOT:
                return _reboot(operation, config)
    except (ValueError, ConfigError, Refused) as error:
        return failed(Cause.INVALID_PARAMETERS, str(error))
    return failed(
        Cause.UNSUPPORTED_OPERATION,
        f"this host's agent does not carry out {operation.kind}; "
        f"it knows {Kind.AGENT_UPGRADE} and {Kind.NODE_REBOOT}",
    )


def _upgrade(operation: Operation, config: Config) -> Upgrade:
    # Late, as whatever fetches releases: a daemon that is given no upgrade does without.
    from hostsync.release.fetch import check_https

    _check_aim(operation)
    url = DownloadUrl.parse(_needed(operation, "downloadURL"))
    check_https(url, Terms(insecure_hosts=config.trust.insecure_hosts))
    default = config.membership.agent if config.membership else None
    return Upgrade(
        agent=config.agent(operation.parameters.get("agent", default)).name,
        url=url,
        digest=Digest.parse(_needed(operation, "sha256")),
        allow_known_bad=_flag(operation, "allowKnownBad"),
    )


def _reboot(operation: Operation, config: Config) -> Reboot:
    _check_aim(operation)
    machine = operation.parameters.get("machine", "")
    if machine and not (_MACHINE.fullmatch(machine) and config.machines.is_worker(machine)):
        raise ValueError(f"the parameter machine names no worker machine here: {machine!r:.80}")
    return Reboot(machine=machine)


def _check_aim(operation: Operation) -> None:
    if operation.machine and operation.selector is not None:
        raise ValueError("spec.machineRef and spec.machineSelector exclude each other")


def _needed(operation: Operation, name: str) -> str:
    value = operation.parameters.get(name, "")
    if not value:
        raise ValueError(f"the parameter {name} is missing")
    return value


def _flag(operation: Operation, name: str) -> bool:
    value = operation.parameters.get(name, _NO)
    if value not in (_YES, _NO):
        raise ValueError(f"the parameter {name} is {_YES!r} or {_NO!r}")
    return value == _YES
