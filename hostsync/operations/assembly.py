"""Puts watches, board, desk and carrier together for one host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hostsync.activation.host import Host
from hostsync.membership import Membership
from hostsync.operations.board import Board
from hostsync.operations.carrier import Carrier
from hostsync.operations.cluster import Cluster
from hostsync.operations.crew import Crew
from hostsync.operations.demand import Demand, Reboot, Say, Upgrade
from hostsync.operations.desk import Desk, Office
from hostsync.operations.operation import Operation
from hostsync.operations.rebooting import reboot
from hostsync.operations.reboots import Restarts
from hostsync.operations.watching import Means, Trouble, Watching

BY_MACHINE = "spec.machineRef={}"


def assemble(
    hosts: Sequence[Host], me: Membership, cluster: Cluster, means: Means | None = None
) -> Crew:
    """The crew that serves this host's operations, not started yet."""
    host = hosts[0]
    board = Board()
    restarts = Restarts(host.config.state_root, host.fs)

    def act(operation: Operation, demand: Demand, say: Say) -> None:
        match demand:
            case Upgrade():
                # What fetches and checks releases is a megabyte that an idle daemon does without.
                from hostsync.operations.upgrading import upgrade

                chosen = next(each for each in hosts if each.agent.name == demand.agent)
                upgrade(hosts, chosen, operation, demand, say)
            case Reboot():
                reboot(hosts, restarts, operation, demand, say)

    carrier = Carrier(act, board.nudge, host.clock)
    desk = Desk(
        Office(
            config=host.config, me=me, hosts=hosts, cluster=cluster,
            board=board, carrier=carrier, restarts=restarts,
        )
    )  # fmt: skip
    means = msgspec.structs.replace(means or Means(), tell=_teller(host))
    tasks = {
        "carrier": carrier.run,
        "desk": desk.run,
        "watch": Watching(cluster, board, BY_MACHINE.format(me.machine), means).run,
    }
    if me.selectors:
        selecting = Watching(cluster, board, BY_MACHINE.format(""), means, else_all=False)
        tasks["watch for selectors"] = selecting.run
    return Crew(tasks)


def _teller(host: Host) -> Callable[[Trouble], None]:
    def tell(trouble: Trouble) -> None:
        if trouble.cause is None:
            host.event("watch", "complete", "operations", "the Kubernetes API answers")
        else:
            host.event("watch", "failed", "operations", trouble.text)

    return tell
