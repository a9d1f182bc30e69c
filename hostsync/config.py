"""Configuration: `/etc/hostsync/config.toml`, optional; every default works.

Wish, not fact: nothing here says what the host is like. Unknown keys are errors, so that a
misspelt limit is not silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec

from hostsync.errors import ConfigError
from hostsync.layout import Layout
from hostsync.membership import Membership, OperationsTable, membership_of
from hostsync.model import SlotKind
from hostsync.trust import DownloadTable, ReleaseTable, Trust, trust_of
from hostsync.workers import Machines, MachinesTable

CONFIG_PATH = Path("/etc/hostsync/config.toml")
DEFAULT_AGENT = "hostsync"
FLEX_AGENT = "aks-flex-node"
AKS_SERVER_ID = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""The Entra application of every AKS API server: the audience of node tokens."""
MAX_SECONDS = 3600

_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9@._+~-]+)+")
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
_AtLeastOneSecond = Annotated[float, msgspec.Meta(ge=1, le=MAX_SECONDS)]
_Service = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9@._:-]{1,200}\.service$")]


class Readiness(StrEnum):
    """How the judge knows that a started agent is ready."""

    NOTIFY = "notify"
    """The unit is active: for Type=notify that means it sent READY=1."""

    STABLE = "stable"
    """The unit is active and the same process ran for `stable_seconds`."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A compatibility path: a link, on the host and where said also in machines.

    `inner` is the program within a release directory, empty for a single-file slot.
    """

    path: Path
    inner: str = ""
    on_host: bool = True
    in_machine: bool = True


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge asks of a candidate; all times in seconds."""

    readiness: Readiness
    start_seconds: float = 90.0
    window_seconds: float = 30.0
    stable_seconds: float = 10.0
    stop_seconds: float = 1.0


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One managed agent: where it lives, which unit runs it, how it proves its health."""

    name: str
    layout: Layout
    unit: str
    health: Health
    commands: tuple[Command, ...]
    version_commands: tuple[str, ...] = ("",)
    """Programs within the release that must answer `version`; "" is the entry."""
    self_test: tuple[str, ...] = ()
    """A command within the release, run in machines before and during a trial."""
    owns_assets: bool = False
    """Whether the release brings hostsync's own service assets."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration, with defaults filled in."""

    agents: Mapping[str, Agent]
    machines: Machines = msgspec.field(default_factory=Machines)
    state_root: Path = Path("/var/lib/hostsync")
    run_root: Path = Path("/run/hostsync")
    unit_root: Path = Path("/etc/systemd/system")
    credential_file: Path = Path("/etc/hostsync/credential.toml")
    """What the host shares with its machines, if it is there."""
    reserve_bytes: int = 64 << 20
    """Free space that staging must leave, so that a roll back never runs out."""
    trust: Trust = msgspec.field(default_factory=Trust)
    membership: Membership | None = None

    @property
    def credential_root(self) -> Path:
        """The directory that machines have bound: what is shared at present."""
        return self.state_root / "credential"

    def agent(self, name: str | None) -> Agent:
        """The agent called `name`; without a name the only one, else hostsync's own.

        Raises ConfigError when there is no such agent.
        """
        if name is None:
            name = next(iter(self.agents)) if len(self.agents) == 1 else DEFAULT_AGENT
        if name not in self.agents:
            known = ", ".join(sorted(self.agents))
            raise ConfigError(
                f"no agent {name!r} is configured; known: {known}",
                remedy=f"add a table [agents.{name}] to {CONFIG_PATH}",
            )
        return self.agents[name]


class _AgentTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    slot_root: str | None = None
    bin_root: str = "/usr/local/bin"
    unit: _Service | None = None
    readiness: Readiness | None = None
    start_seconds: _AtLeastOneSecond | None = None
    window_seconds: _Seconds | None = None
    stable_seconds: _Seconds | None = None
    stop_seconds: _Seconds | None = None
    self_test: list[str] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    agents: dict[str, _AgentTable] = {}
    machines: MachinesTable = msgspec.field(default_factory=MachinesTable)
    state_root: str = "/var/lib/hostsync"
    run_root: str = "/run/hostsync"
    unit_root: str = "/etc/systemd/system"
    credential_file: str = "/etc/hostsync/credential.toml"
    reserve_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 64
    download: DownloadTable = msgspec.field(default_factory=DownloadTable)
    release: ReleaseTable = msgspec.field(default_factory=ReleaseTable)
    operations: OperationsTable | None = None


def load(path: Path = CONFIG_PATH) -> Config:
    """Read the configuration file; a missing file means the defaults.

    Raises ConfigError, naming the file and the key, for anything that cannot be used.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        file = msgspec.toml.decode(data, type=_File)
        trust = trust_of(file.download, file.release)
        tables = file.agents or {DEFAULT_AGENT: _AgentTable()}
        membership = membership_of(file.operations, tables)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}", remedy="see docs/configuration.md") from error
    agents = {name: _agent(name, table, path) for name, table in tables.items()}
    _check_apart(tuple(agents.values()), path)
    return Config(
        agents=MappingProxyType(agents),
        machines=_machines(file.machines, path),
        state_root=_absolute(file.state_root, "state_root", path),
        run_root=_absolute(file.run_root, "run_root", path),
        unit_root=_absolute(file.unit_root, "unit_root", path),
        credential_file=_absolute(file.credential_file, "credential_file", path),
        reserve_bytes=file.reserve_mib << 20,
        trust=trust,
        membership=membership,
    )


def _absolute(text: str, key: str, path: Path) -> Path:
    """A path that means the same in a unit file, in machine settings and in a shell."""
    value = Path(text)
    if not _PLAIN_PATH.fullmatch(str(value)) or ".." in value.parts:
        raise ConfigError(
            f"{path}: {key} must be an absolute path of letters, digits and @._+~- without '..', "
            f"not {text!r:.200}"
        )
    return value


def _check_apart(agents: tuple[Agent, ...], path: Path) -> None:
    """Two agents in one slot root, or on one unit, would take each other's releases away."""
    for one, other in combinations(agents, 2):
        roots = (one.layout.root, other.layout.root)
        if roots[0].is_relative_to(roots[1]) or roots[1].is_relative_to(roots[0]):
            raise ConfigError(
                f"{path}: agents.{one.name}.slot_root and agents.{other.name}.slot_root must be "
                f"apart, not {roots[0]} and {roots[1]}"
            )
        if one.unit == other.unit:
            raise ConfigError(
                f"{path}: agents.{one.name}.unit and agents.{other.name}.unit are both {one.unit}"
            )


def hostsync_agent(slot_root: Path, bin_root: Path) -> Agent:
    """The profile of hostsync's own daemon, delivered as a bundle."""
    return Agent(
        name=DEFAULT_AGENT,
        layout=Layout(root=slot_root, kind=SlotKind.BUNDLE, entry="bin/hostsync"),
        unit="hostsync.service",
        health=Health(readiness=Readiness.NOTIFY),
        commands=(
            Command(path=bin_root / "hostsync", inner="bin/hostsync", in_machine=False),
            Command(path=bin_root / "hostsync-credential", inner="bin/hostsync-credential"),
        ),
        version_commands=("bin/hostsync", "bin/hostsync-credential"),
        self_test=("bin/hostsync-credential", "check", "--no-gate", "--server-id", AKS_SERVER_ID),
        owns_assets=True,
    )


def flex_agent(slot_root: Path, bin_root: Path) -> Agent:
    """The profile of the AKS Flex Node agent, a single executable file."""
    return Agent(
        name=FLEX_AGENT,
        layout=Layout(root=slot_root, kind=SlotKind.FILE, prefix=f"{FLEX_AGENT}-"),
        unit="aks-flex-node-agent.service",
        health=Health(readiness=Readiness.STABLE),
        commands=(Command(path=bin_root / FLEX_AGENT),),
    )


_PROFILES: Mapping[str, tuple[Callable[[Path, Path], Agent], Path]] = {
    DEFAULT_AGENT: (hostsync_agent, Path("/usr/local/lib/hostsync")),
    FLEX_AGENT: (flex_agent, Path("/usr/local/lib/aks-flex-node")),
}


def _agent(name: str, table: _AgentTable, path: Path) -> Agent:
    if name not in _PROFILES:
        raise ConfigError(
            f"{path}: [agents.{name}] has no profile",
            remedy=f"the profiles are {' and '.join(sorted(_PROFILES))}",
        )
    profile, slot_root = _PROFILES[name]
    key = f"agents.{name}"
    base = profile(
        _absolute(
            str(slot_root) if table.slot_root is None else table.slot_root, f"{key}.slot_root", path
        ),
        _absolute(table.bin_root, f"{key}.bin_root", path),
    )
    return msgspec.structs.replace(
        base,
        unit=table.unit or base.unit,
        health=_health(base.health, table),
        self_test=_self_test(base, table, f"{key}.self_test", path),
    )


def _self_test(base: Agent, table: _AgentTable, key: str, path: Path) -> tuple[str, ...]:
    """The command line of the self-test; its program lies within the release."""
    if not table.self_test:
        return base.self_test if table.self_test is None else ()
    program = Path(table.self_test[0])
    itself = program == Path()
    if program.is_absolute() or ".." in program.parts or itself is not (not base.layout.entry):
        wanted = "a path within the release" if base.layout.entry else "empty, the agent itself"
        raise ConfigError(f"{path}: the first word of {key} must be {wanted}, not {program}")
    return tuple(table.self_test)


def _health(base: Health, table: _AgentTable) -> Health:
    names = ("readiness", "start_seconds", "window_seconds", "stable_seconds", "stop_seconds")
    given = {name: value for name in names if (value := getattr(table, name)) is not None}
    return msgspec.structs.replace(base, **given)


def _machines(table: MachinesTable, path: Path) -> Machines:
    return Machines(
        include=table.include,
        mirror_only=table.mirror_only,
        root=_absolute(table.root, "machines.root", path),
        check_seconds=table.check_seconds,
        credential_copy=table.credential_copy,
    )
