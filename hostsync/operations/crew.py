"""The threads that serve operations: watches, desk and carrier, started and looked after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class Crew:
    """Threads that run as long as the process does. None may end by an error unnoticed."""

    def __init__(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        self._tasks = dict(tasks)
        self._fallen: BaseException | None = None

    def start(self) -> None:
        """Start every task on a thread of its own."""
        for name, task in self._tasks.items():
            threading.Thread(target=self._run, args=(task,), name=name, daemon=True).start()

    def check(self) -> None:
        """Raise what ended a task, if anything did: the service then ends and is started anew."""
        if self._fallen is not None:
            raise self._fallen

    def _run(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised on the daemon's own thread
            self._fallen = error
