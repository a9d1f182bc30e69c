"""A cluster in a dictionary: keeps `Cluster`'s promises, and breaks in as a test tells it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.cluster import Seen
from hostsync.operations.operation import Operation
from tests.operations.specimens import merged, stored

Interfere = Callable[[], None]
"""Something that happens in the cluster just before a request arrives; may raise."""


def trouble(cause: ClusterCause, wait: float = 0.0) -> ClusterError:
    return ClusterError(cause, f"the API says {cause}", wait=wait)


def raising(cause: ClusterCause, wait: float = 0.0) -> Interfere:
    def act() -> None:
        raise trouble(cause, wait)

    return act


@dataclass(slots=True)
class PlayedCluster:
    """Objects by name. `log` has each request; `before` acts before those of its verb, in turn.

    `watches` are what each watch in turn brings: events, and at last perhaps an error.
    """

    objects: dict[str, tuple[Operation, dict[str, Any]]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    before: dict[str, list[Interfere]] = field(default_factory=dict)
    watches: list[Sequence[Seen | ClusterError]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    versions: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    def put(self, operation: Operation, **status: object) -> Operation:
        """Store an object, new or in the place of another one."""
        kept = replace(operation, version=str(next(self.versions)))
        self.objects[operation.name] = kept, dict(status)
        return self.at(operation.name)

    def at(self, name: str) -> Operation:
        """The object as a reader gets it."""
        operation, status = self.objects[name]
        return replace(
            stored(operation, status), parameters=operation.parameters, ttl=operation.ttl,
            selector=operation.selector,
        )  # fmt: skip

    def status(self, name: str) -> dict[str, Any]:
        return self.objects[name][1]

    def count(self, verb: str) -> int:
        return sum(entry.split()[0] == verb for entry in self.log)

    def list(self, field_selector: str) -> tuple[tuple[Operation, ...], str]:
        self._arrive("list", field_selector)
        name = field_selector.removeprefix("spec.machineRef=")
        found = [self.at(each) for each in self.objects]
        chosen = [each for each in found if not field_selector or each.machine == name]
        return tuple(chosen), str(next(self.versions))

    def watch(self, field_selector: str, version: str, seconds: float) -> Iterator[Seen]:
        self._arrive("watch", field_selector, version, f"{seconds:g}")
        for seen in self.watches.pop(0) if self.watches else ():
            if isinstance(seen, ClusterError):
                raise seen
            yield seen

    def get(self, name: str) -> Operation | None:
        self._arrive("get", name)
        return self.at(name) if name in self.objects else None

    def patch_status(self, name: str, patch: Mapping[str, object]) -> Operation:
        self._arrive("patch", name)
        operation = self._there(name)
        self._check(operation, patch)
        status = merged(self.objects[name][1], patch["status"])
        assert isinstance(status, dict)
        return self.put(operation, **status)

    def apply_status(self, name: str, owner: str, wanted: Mapping[str, object]) -> Operation:
        self._arrive("apply", name, owner)
        operation = self._there(name)
        document: Any = wanted
        self._check(operation, wanted)
        (entry,) = document["status"]["targets"]
        targets = {each["machineRef"]: each for each in self.status(name).get("targets", [])}
        targets[entry["machineRef"]] = entry
        return self.put(operation, **self.status(name) | {"targets": [*targets.values()]})

    def delete(self, operation: Operation) -> None:
        self._arrive("delete", operation.name)
        there = self._there(operation.name)
        if (there.uid, there.version) != (operation.uid, operation.version):
            raise trouble(ClusterCause.CONFLICT)
        del self.objects[operation.name]

    def node_labels(self, node: str) -> Mapping[str, str]:
        self._arrive("labels", node)
        return dict(self.labels)

    def _arrive(self, verb: str, *what: str) -> None:
        self.log.append(" ".join((verb, *what)))
        acts = self.before.get(verb, [])
        if acts:
            acts.pop(0)()

    def _check(self, operation: Operation, document: Mapping[str, object]) -> None:
        """A server compares the version alone: the uid it takes from the object that is there."""
        metadata: Any = document["metadata"]
        if metadata["resourceVersion"] != operation.version:
            raise trouble(ClusterCause.CONFLICT)

    def _there(self, name: str) -> Operation:
        if name not in self.objects:
            raise trouble(ClusterCause.GONE)
        return self.at(name)
