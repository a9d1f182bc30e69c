"""Time and network as tests choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from credential_shim.errors import ShimError
from credential_shim.exchange import Answer
from credential_shim.identity import Endpoint
from credential_shim.tokens import Token


@dataclass(slots=True)
class FakeClock:
    """Both clocks stand still until somebody sleeps; ``on_sleep`` is told how long."""

    wall: float = 1_700_000_000.0
    steady: float = 1000.0
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[], None] | None = None

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        if self.on_sleep is not None:
            self.on_sleep()

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@dataclass(frozen=True, slots=True)
class Sent:
    """One request a transport was asked to make."""

    endpoint: str
    target: str
    headers: dict[str, str]
    seconds: float


@dataclass(slots=True)
class ScriptedTransport:
    """Answers in order; an error among them is raised, after as long as the attempt may take."""

    clock: FakeClock
    answers: list[Answer | ShimError]
    sent: list[Sent] = field(default_factory=list)

    def get(
        self, endpoint: Endpoint, target: str, headers: dict[str, str], seconds: float
    ) -> Answer:
        self.sent.append(Sent(str(endpoint), target, headers, seconds))
        answer = self.answers.pop(0)
        if isinstance(answer, ShimError):
            self.clock.advance(seconds if answer.tries == 99 else 0)
            raise answer
        return answer


@dataclass(slots=True)
class ScriptedSource:
    """Tokens or errors in order."""

    results: list[Token | ShimError]
    budgets: list[float] = field(default_factory=list)

    def fetch(self, seconds: float) -> Token:
        self.budgets.append(seconds)
        result = self.results.pop(0)
        if isinstance(result, ShimError):
            raise result
        return result


@dataclass(slots=True)
class ScriptedPoster:
    """Answers in order, as ScriptedTransport does; remembers origin, path and form."""

    clock: FakeClock
    answers: list[Answer | ShimError]
    sent: list[tuple[str, str, bytes]] = field(default_factory=list)

    def post(self, origin: str, path: str, form: bytes, seconds: float) -> Answer:
        self.sent.append((origin, path, form))
        answer = self.answers.pop(0)
        if isinstance(answer, ShimError):
            raise answer
        return answer
