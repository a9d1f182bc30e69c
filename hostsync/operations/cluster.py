"""The cluster as the operations see it: a narrow interface that says how it behaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum, auto
from typing import Protocol

import msgspec

from hostsync.operations.operation import Operation


class Change(StrEnum):
    """What happened to an operation."""

    PUT = auto()
    """It is there, new or changed."""

    GONE = auto()
    """It is there no more, or no longer within the scope."""

    MARK = auto()
    """Nothing: the server only says how far the watch has come."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a watch; `version` is where a later watch may go on from."""

    change: Change
    version: str
    operation: Operation | None = None


class Cluster(Protocol):
    """The Kubernetes API as far as operations need it. Every verb raises ClusterError."""

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        """All operations that the selector lets through, and the version they were seen at."""

    def watch(self, field_selector: str, version: str, seconds: float) -> Iterator[Seen]:
        """What happens after a version, for about that long; ends when the server ends it."""

    def get(self, name: str) -> Operation | None:
        """An operation as it is now, None when there is none of that name."""

    def patch_status(self, name: str, patch: Mapping[str, object]) -> Operation:
        """Merge into the status; refused (CONFLICT) when what the patch was made from changed."""

    def apply_status(self, name: str, owner: str, wanted: Mapping[str, object]) -> Operation:
        """Apply, as the owner of these fields and no others."""

    def delete(self, operation: Operation) -> None:
        """Remove exactly this object, as it was seen; one made anew under its name stays."""

    def node_labels(self, node: str) -> Mapping[str, str]:
        """The labels of a Node, empty when there is none."""
