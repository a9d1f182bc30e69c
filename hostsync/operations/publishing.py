"""Writing what is to be said into an operation's status, and only there, and never twice.

A conflict repeats the write and nothing else. What is terminal is left as it is; what was made
anew under the same name is another operation.
"""

from __future__ import annotations

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Cluster
from hostsync.operations.operation import Operation
from hostsync.operations.report import Report, entry_patch, is_told, status_patch

TRIES = 8


def publish(
    cluster: Cluster, operation: Operation, report: Report, machine: str, now: float
) -> Operation | None:
    """Have the status say it and return the operation as it is then; None when it is gone.

    Raises ClusterError; to be tried again then.
    """
    for _ in range(TRIES):
        if operation.is_over or is_told(operation, report, machine):
            return operation
        try:
            return _write(cluster, operation, report, machine, now)
        except ClusterError as error:
            if error.cause is ClusterCause.GONE:
                return None
            if error.cause is not ClusterCause.CONFLICT:
                raise
            conflict = error
        latest = cluster.get(operation.name)
        if latest is None or latest.uid != operation.uid:
            return None
        operation = latest
    raise conflict


def _write(
    cluster: Cluster, operation: Operation, report: Report, machine: str, now: float
) -> Operation:
    if operation.machine:
        return cluster.patch_status(operation.name, status_patch(operation, report, now))
    entry = entry_patch(operation, report, machine, now)
    return cluster.apply_status(operation.name, f"hostsync-{machine}", entry)
