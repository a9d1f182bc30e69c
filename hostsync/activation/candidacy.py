"""From an opened candidate to one that lies beside the slots, planned with; no record yet.

An archive is inflated once. So it is unpacked first, and the plan is made from what was found; a
refusal takes it away again. What the host could refuse any release for is asked before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hostsync import slots
from hostsync.activation.facts import Observed, Wish
from hostsync.activation.host import Host
from hostsync.activation.observe import observe
from hostsync.activation.plan import NothingToDo, Plan, plan_upgrade
from hostsync.activation.refusals import check_ready
from hostsync.activation.service import JUDGE_UNIT
from hostsync.activation.stage import Options
from hostsync.errors import Reason, Refused
from hostsync.layout import TRASH_PREFIX
from hostsync.release import Candidate, Given, open_candidate


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that lies unpacked, not yet durably, at the staging place of `order`."""

    order: str
    staging: Path
    candidate: Candidate
    plan: Plan


@contextmanager
def candidacy(host: Host, given: Given, options: Options) -> Iterator[Ready | NothingToDo]:
    """Open a candidate, unpack it for a new order, and plan with what it turned out to be.

    The caller holds the host's lock and has settled any earlier record. No record names what is
    unpacked: after a kill the next verb sweeps it. It is removed when there is nothing to do, and
    after any error, the caller's included. Raises Refused, Failed.
    """
    layout = host.agent.layout
    with open_candidate(given, agent=host.agent.name, kind=layout.kind) as candidate:
        _check_judge(host)
        observed, order = observe(host), new_order()
        wishing = _Wishing(host, observed, candidate, str(given), options)
        if not (candidate.is_packed and wishing.fits()):
            # Reading it costs little, or it is refused unless it is the release in use: nothing
            # is written before that is known.
            plan = wishing.plan()
            if isinstance(plan, NothingToDo):
                yield plan
                return
        staging = layout.staging(order)
        host.event("stage", "started", str(staging), f"up to {-(-candidate.room >> 20)} MiB")
        with _discarded_on_failure(host, order):
            candidate.unpack(staging, host.fs, room=observed.space.free - host.config.reserve_bytes)
            plan = wishing.plan()
            if isinstance(plan, NothingToDo):
                discard(host, order)
                yield plan
            else:
                yield Ready(order=order, staging=staging, candidate=candidate, plan=plan)


def discard(host: Host, order: str) -> None:
    """Remove what lies at the staging place of an order; idempotent."""
    layout = host.agent.layout
    slots.discard(host.fs, layout, layout.staging(order), order)
    host.fs.sweep(layout.root, TRASH_PREFIX)


def new_order() -> str:
    """An id for an order: eight hexadecimal digits."""
    return secrets.token_hex(4)


class _Wishing(msgspec.Struct, frozen=True):
    """What was ordered, on a host as it was before anything was written."""

    host: Host
    observed: Observed
    candidate: Candidate
    label: str
    options: Options

    def fits(self) -> bool:
        """Whether the host can take the candidate, as far as a glance at it tells."""
        size, reserve = self.candidate.room, self.host.config.reserve_bytes
        best_effort = self.options.best_effort
        try:
            check_ready(
                self.host.agent, self.observed, size, reserve=reserve, best_effort=best_effort
            )
        except Refused:
            return False
        return True

    def plan(self) -> Plan | NothingToDo:
        """The plan with what the candidate is; it is read for that unless it was."""
        inspected = self.candidate.inspect()
        wish = Wish(
            digest=inspected.content_digest,
            size=inspected.size,
            label=self.label,
            allow_known_bad=self.options.allow_known_bad,
            best_effort=self.options.best_effort,
        )
        reserve = self.host.config.reserve_bytes
        return plan_upgrade(self.host.agent, self.observed, wish, reserve=reserve)


def _check_judge(host: Host) -> None:
    if host.units.state(JUDGE_UNIT).load != "loaded":
        raise Refused(
            Reason.NOT_INSTALLED,
            f"{JUDGE_UNIT} is not installed on this host, so nothing could roll back",
            remedy="run `hostsync install` first",
        )


@contextmanager
def _discarded_on_failure(host: Host, order: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        discard(host, order)
        raise
