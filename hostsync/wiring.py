"""The one composition root: builds the real adapters and hands them to the core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hostsync.activation.host import Host, Tell
from hostsync.clock import SystemClock
from hostsync.config import Agent, Config
from hostsync.fs import Disk
from hostsync.machines import NspawnMachines
from hostsync.probe import SystemProbe
from hostsync.record import RecordFile
from hostsync.state import State
from hostsync.units import Systemd
from nspawn.machined import Machined

if TYPE_CHECKING:
    from hostsync.operations.crew import Crew


class Wired(msgspec.Struct, frozen=True, kw_only=True):
    """The host's adapters, shared by all agents; connections open at first use."""

    config: Config
    machines: NspawnMachines
    hosts: tuple[Host, ...]

    def host(self, agent: Agent) -> Host:
        """The host as that agent's transaction sees it."""
        return next(host for host in self.hosts if host.agent is agent)


def wire(config: Config, tell: Tell) -> Wired:
    """Build everything for every configured agent. Opens and changes nothing yet."""
    machines = NspawnMachines(config.machines, Machined())
    disk, units, probe, clock = Disk(), Systemd(), SystemProbe(), SystemClock()

    def host(agent: Agent) -> Host:
        directory = config.state_root / agent.name
        return Host(
            config=config,
            agent=agent,
            fs=disk,
            units=units,
            probe=probe,
            clock=clock,
            machines=machines,
            record=RecordFile(directory, disk),
            state=State(directory, disk),
            tell=tell,
        )

    agents = config.agents.values()
    return Wired(config=config, machines=machines, hosts=tuple(host(agent) for agent in agents))


def crew_for_operations(config: Config, tell: Tell) -> Crew | None:
    """The threads that take orders from the cluster; None where the configuration names none.

    They have adapters of their own: a connection to the bus belongs to one thread.
    """
    me = config.membership
    if me is None:
        return None
    from hostsync.operations import assembly
    from hostsync.operations.kubernetes import KubernetesCluster

    cluster = KubernetesCluster(me.kubeconfig, own_release())
    return assembly.assemble(wire(config, tell).hosts, me, cluster)


def start_events(config: Config) -> Callable[[float], str | None]:
    """A source of machine starts, on a connection of its own."""
    return NspawnMachines.connected(config.machines).wait_for_start


def own_release(module: Path = Path(__file__)) -> Path | None:
    """The release directory that this code runs from, None when it is not a bundle."""
    release = module.resolve().parents[3]
    return release if (release / "bin/hostsync").is_file() else None
