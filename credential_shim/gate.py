"""The gate: no token from a shim of another release than the one the host selects.

Two facts are compared with the seal beside this code: the seal behind ``current``, and, in a
mirror, WANTED, the seal which the host last told it to select. See ``decide`` for the rules.

All three are replaced by rename, so that none is ever torn: a defect is damage, and refused at
once under its own cause, whatever the policy on skew. But a slot that is rolled back may go while
a shim that was started from it still loads: then its own seal is missing, and the release behind
``current`` is run instead, or waited for.
"""

import os

from credential_shim.clock import Deadline
from credential_shim.errors import SkewError
from credential_shim.seals import Defect, Seal, read_seal

GRACE_SECONDS = 60.0
"""A switch younger than this is an upgrade in flight; same-protocol shims serve through it."""
FUTURE_SLACK_SECONDS = 5.0
"""A link from further in the future says nothing about its age."""
WAIT_SECONDS = 5.0
POLL_SECONDS = 0.05

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from credential_shim.ports import Clock, Sealed


class Act:
    """What the gate decides, in words; no Enum, which takes long to load."""

    SERVE = "serve"
    SERVE_WITH_WARNING = "serve with a warning"
    REEXEC = "run the shim behind current instead"
    WAIT = "wait for the host to converge"
    REFUSE = "refuse"


class View:
    """What the gate sees: three seals, and seconds since the younger of the two switches."""

    __slots__ = ("age", "current", "own", "wanted")

    def __init__(
        self,
        *,
        own: Seal | Defect,
        current: Seal | Defect,
        wanted: Seal | Defect | None,
        age: float | None,
    ) -> None:
        self.own: Final = own
        self.current: Final = current
        self.wanted: Final = wanted
        self.age: Final = age


def decide(view: View, *, serve_on_skew: bool, may_reexec: bool) -> tuple[str, str]:
    """Return what to do and, unless that is to serve, why. Pure.

    In this order: an own seal that is gone, with one behind ``current``, has that run or waits; a
    defective seal refuses; equal seals serve; ``current``, where it is what the
    host selects and not ours, is run instead; a young switch within one protocol serves with a
    warning; so does the policy; what is left waits.
    """
    seals: list[Seal] = []
    for reading in (view.own, view.current, view.wanted):
        if isinstance(reading, Defect):
            return _on_defect(view, reading, may_reexec=may_reexec), f"{reading}; {_REPAIR}"
        if reading is not None:
            seals.append(reading)
    own, *others = seals
    if all(seal.raw == own.raw for seal in others):
        return Act.SERVE, ""
    skew = _describe(own, others)
    selected_is_current = all(seal.raw == others[0].raw for seal in others)
    if may_reexec and selected_is_current:
        return Act.REEXEC, skew
    same_protocol = all(seal.protocol == own.protocol for seal in others)
    if same_protocol and view.age is not None and view.age < GRACE_SECONDS:
        return Act.SERVE_WITH_WARNING, f"{skew}; serving, as the switch is {view.age:.0f} s old"
    if serve_on_skew:
        return Act.SERVE_WITH_WARNING, f"{skew}; serving, as --on-skew=serve says"
    return Act.WAIT, f"{skew}; {_REMEDY}"


def _on_defect(view: View, defect: Defect, *, may_reexec: bool) -> str:
    if defect is view.own and defect.absent and isinstance(view.current, Seal):
        return Act.REEXEC if may_reexec else Act.WAIT
    return Act.REFUSE


_REPAIR = "no token is served; run 'hostsync sync' on the host, or install the release again"
_REMEDY = (
    "no token is served; finish the upgrade or run 'hostsync sync' on the host "
    "(--on-skew=serve would serve)"
)


def _describe(own: Seal, others: list[Seal]) -> str:
    names = ("current is", "the host selects")
    text = " and ".join(
        f"{name} {seal}" for name, seal in zip(names, others, strict=False) if seal.raw != own.raw
    )
    return f"this shim is of release {own}, but {text}"


def age_of(changes: list[float], now: float) -> float | None:
    """Return seconds since the latest change that is not in the future; None without one."""
    ages = [now - change for change in changes if change <= now + FUTURE_SLACK_SECONDS]
    return max(0.0, min(ages)) if ages else None


def observe(release: "Sealed", now: float) -> View:
    """Read the seals of ``release`` and around it. Never raises OSError."""
    wanted = read_seal(release.wanted)
    return View(
        own=read_seal(release.own_seal),
        current=read_seal(release.current_seal),
        wanted=None if isinstance(wanted, Defect) and wanted.absent else wanted,
        age=age_of(_changes(release), now),
    )


def _changes(release: "Sealed") -> list[float]:
    changes = []
    for path in (release.current_link, release.wanted):
        try:
            changes.append(os.lstat(path).st_mtime)
        except OSError:
            continue
    return changes


class Gate:
    """The way through the gate: observe, decide, wait, decide again."""

    def __init__(
        self,
        release: "Sealed",
        clock: "Clock",
        *,
        serve_on_skew: bool,
        reexec: "Callable[[], None] | None",
    ) -> None:
        self._release = release
        self._clock = clock
        self._serve_on_skew = serve_on_skew
        self._reexec = reexec
        self._failure = ""

    def wait(self, deadline: Deadline) -> str:
        """Return when a token may be served, with a warning to say or "".

        Waits at most WAIT_SECONDS and never past ``deadline``. Raises SkewError, and does not
        return at all when the shim behind ``current`` takes over.
        """
        start = self._clock.monotonic()
        while True:
            act, reason = self._decide()
            if act in (Act.SERVE, Act.SERVE_WITH_WARNING):
                return reason
            waited = self._clock.monotonic() - start
            out_of_time = waited >= WAIT_SECONDS or deadline.remaining() <= POLL_SECONDS
            if act == Act.REFUSE or out_of_time:
                raise SkewError(f"refused: {self._failure}{reason}")
            self._clock.sleep(POLL_SECONDS)

    def _decide(self) -> tuple[str, str]:
        act, reason = self._look()
        if act == Act.REEXEC and self._reexec is not None:
            try:
                self._reexec()
            except OSError as error:
                # Without its shim `current` can only be waited for.
                self._reexec = None
                self._failure = f"the shim behind current cannot be run: {error.strerror}; "
                act, reason = self._look()
        return act, reason

    def _look(self) -> tuple[str, str]:
        view = observe(self._release, self._clock.now())
        may_reexec = self._reexec is not None
        return decide(view, serve_on_skew=self._serve_on_skew, may_reexec=may_reexec)
