"""The real clock, and deadlines on it."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from credential_shim.ports import Clock


class SystemClock:
    """The kernel's clocks."""

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds: the same value in every process of this boot."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        time.sleep(seconds)


class Deadline:
    """An instant on the monotonic clock by which the work has to end."""

    __slots__ = ("_clock", "at")

    def __init__(self, clock: "Clock", at: float) -> None:
        self._clock = clock
        self.at = at

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self._clock.monotonic())
