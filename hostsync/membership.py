"""Who this host is to the cluster, as the configuration says it: `[operations]`.

Without the table the host takes no orders from a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import msgspec

KUBECONFIG = Path("/etc/hostsync/kubeconfig")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster calls this host.

    `machine` is what an operation's `spec.machineRef` says when it means this host, `node` the
    Node whose labels a `spec.machineSelector` is held against, `agent` the agent that an
    `AgentUpgrade` means when it names none (None: the configuration's only or default one).
    `kubeconfig` is None for the token that a pod is given.
    """

    machine: str
    node: str
    agent: str | None = None
    kubeconfig: Path | None = KUBECONFIG
    selectors: bool = True


class OperationsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`[operations]` in the configuration file."""

    machine: str
    node: str | None = None
    agent: str | None = None
    kubeconfig: str | None = None
    in_cluster: bool = False
    selectors: bool = True


def membership_of(table: OperationsTable | None, agents: Collection[str]) -> Membership | None:
    """The membership that a table describes; raises ValueError for one that cannot be meant.

    `agents` are the names of those that are configured.
    """
    if table is None:
        return None
    for key, value in (("machine", table.machine), ("node", table.node)):
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError(f"operations.{key} must be the name of an object, not {value!r:.80}")
    if table.agent is not None and table.agent not in agents:
        known = ", ".join(sorted(agents))
        raise ValueError(f"operations.agent is {table.agent!r:.80}, configured are {known}")
    if table.in_cluster and table.kubeconfig is not None:
        raise ValueError("operations.in_cluster and operations.kubeconfig exclude each other")
    kubeconfig = Path(table.kubeconfig) if table.kubeconfig is not None else KUBECONFIG
    if not kubeconfig.is_absolute():
        raise ValueError(f"operations.kubeconfig must be an absolute path, not {kubeconfig}")
    return Membership(
        machine=table.machine,
        node=table.node or table.machine,
        agent=table.agent,
        kubeconfig=None if table.in_cluster else kubeconfig,
        selectors=table.selectors,
    )
