"""The board: operations as the watches last saw them, shared between threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from hostsync.operations.operation import Operation


class Board:
    """Operations by scope and uid. Whoever changes it wakes the one who waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._scopes: dict[str, dict[str, Operation]] = {}
        self._news = False

    def replace(self, scope: str, operations: Iterable[Operation]) -> None:
        """What a list of that scope found: all there is."""
        with self._changed:
            self._scopes[scope] = {each.uid: each for each in operations}
            self._wake()

    def put(self, scope: str, operation: Operation) -> None:
        """An operation that is new or has changed."""
        with self._changed:
            self._scopes.setdefault(scope, {})[operation.uid] = operation
            self._wake()

    def remove(self, scope: str, uid: str) -> None:
        """An operation that is gone."""
        with self._changed:
            if self._scopes.get(scope, {}).pop(uid, None) is not None:
                self._wake()

    def renew(self, operation: Operation) -> None:
        """An operation as an answer showed it, before the watch brings it; wakes nobody."""
        with self._changed:
            for scope in self._scopes.values():
                if operation.uid in scope:
                    scope[operation.uid] = operation

    def forget(self, uid: str) -> None:
        """An operation that was found to be gone, before the watch says so."""
        with self._changed:
            for scope in self._scopes.values():
                scope.pop(uid, None)

    def operations(self) -> tuple[Operation, ...]:
        """All operations, each once."""
        with self._changed:
            return tuple(
                {
                    uid: each for scope in self._scopes.values() for uid, each in scope.items()
                }.values()
            )

    def nudge(self) -> None:
        """Wake whoever waits, though no operation has changed."""
        with self._changed:
            self._wake()

    def wait(self, seconds: float | None) -> None:
        """Return when there is news since the last wait, at the latest after that time."""
        longest = None if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        with self._changed:
            self._changed.wait_for(lambda: self._news, longest)
            self._news = False

    def _wake(self) -> None:
        self._news = True
        self._changed.notify_all()
