"""An iterator that is advanced on a thread of its own, a little ahead of its reader.

zlib, SHA-256 and writing all let go of the interpreter's lock, so inflating what comes next and
hashing and writing what came before go on side by side.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from queue import SimpleQueue
from threading import Thread

DEPTH = 8
"""So many items are made at most before they are asked for."""


def read_ahead(items: Iterable[bytes], depth: int = DEPTH) -> Generator[bytes, None, None]:
    """The same items in the same order, and in the end the same exception.

    Closed early, it returns when the thread has ended, after `depth` more items at most.
    """
    found: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
    goes_on: SimpleQueue[bool] = SimpleQueue()

    def run() -> None:
        end: BaseException | None = None
        try:
            for item in items:
                found.put(item)
                if not goes_on.get():
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the reader
            end = error
        found.put(end)

    for _ in range(depth):
        goes_on.put(True)
    thread = Thread(target=run, name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := found.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            goes_on.put(True)
            yield item
    finally:
        goes_on.put(False)
        thread.join()
