"""Notices clients that leave in the middle of a stream which has nothing to send."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_GONE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLONESHOT


class Departures:
    """One thread for all streams of a server; a client that streams are sent to says nothing more.

    Whatever arrives from it (the end of the connection, TLS's farewell) is taken for its departure.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake, self._woken = socket.socketpair()
        self._epoll.register(self._woken.fileno(), select.EPOLLIN)
        self._lock = threading.Lock()
        self._streams: dict[int, Callable[[], None]] = {}
        self._thread = threading.Thread(target=self._attend, name="departures", daemon=True)
        self._thread.start()

    @contextmanager
    def watched(self, connection: socket.socket, leave: Callable[[], None]) -> Iterator[None]:
        """Call `leave`, once and from another thread, if the client departs meanwhile."""
        number = connection.fileno()
        with self._lock:
            self._streams[number] = leave
            self._epoll.register(number, _GONE)
        try:
            yield
        finally:
            with self._lock:
                del self._streams[number]
                with suppress(OSError):
                    self._epoll.unregister(number)

    def close(self) -> None:
        """End the thread."""
        self._wake.send(b"x")
        self._thread.join()
        for each in (self._wake, self._woken, self._epoll):
            each.close()

    def _attend(self) -> None:
        while True:
            for number, _ in self._epoll.poll():
                if number == self._woken.fileno():
                    return
                with self._lock:
                    leave = self._streams.get(number)
                if leave:
                    leave()
