"""From what the host is like and what was ordered to ordered steps, or to a refusal.

Pure: opens nothing. What `--preflight` prints and what `upgrade` does are the same steps.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hostsync.activation.facts import Observed, Wish
from hostsync.activation.refusals import (
    check_installed,
    check_known_bad,
    check_layout,
    check_ready,
)
from hostsync.config import Agent
from hostsync.errors import Reason, Refused
from hostsync.model import Seal, SlotName
from hostsync.slots import Condition, SlotFacts


class Act(StrEnum):
    """What a step does."""

    STAGE = "stage"
    VERIFY = "verify"
    MIRROR = "mirror"
    EVICT = "evict"
    PLACE = "place"
    LINK = "link"
    JUDGE = "judge"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One act of a plan; `act` is the glossary's word, `object` what it acts on."""

    act: Act
    object: str
    detail: str = ""

    def describe(self) -> str:
        """The step in one line, for people."""
        return f"{self.act.value:<10} {self.object}" + (f"  {self.detail}" if self.detail else "")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A switch that may go ahead, and its steps in order."""

    previous: SlotName
    previous_seal: Seal
    target: SlotName
    last_good: SlotName | None
    evicts: bool
    staged: bool
    restart: bool
    steps: tuple[Step, ...]


class NothingToDo(msgspec.Struct, frozen=True, kw_only=True):
    """The host is as ordered already."""

    why: str


def plan_upgrade(
    agent: Agent, observed: Observed, wish: Wish, *, reserve: int
) -> Plan | NothingToDo:
    """Plan the switch to a candidate that was read, and `observed` before it was unpacked.

    Raises Refused, naming the path, the limit and the remedy; then nothing was changed.
    """
    current, seal = check_installed(agent, observed)
    if seal.sha256 == wish.digest:
        return NothingToDo(why=f"{agent.name} {seal.version} is current already")
    check_known_bad(observed, wish)
    check_ready(agent, observed, wish.size, reserve=reserve, best_effort=wish.best_effort)
    target = current.other
    facts = observed.slots[target]
    evicts = facts.condition is not Condition.EMPTY
    names = tuple(machine.name for machine in observed.machines)
    return Plan(
        previous=current,
        previous_seal=seal,
        target=target,
        last_good=observed.last_good.slot,
        evicts=evicts,
        staged=True,
        restart=observed.unit.active != "inactive",
        steps=(
            *_staging_steps(agent, wish, names),
            *_switching_steps(agent, current, facts if evicts else None, names, staged=True),
        ),
    )


def plan_rollback(agent: Agent, observed: Observed) -> Plan | NothingToDo:
    """Plan the switch back to the release that last-good names, on an operator's order.

    It is a switch like any other: recorded, judged, and undone when it fails. Raises Refused.
    """
    current, seal = check_installed(agent, observed)
    target = observed.last_good.slot
    if target is None or target is current:
        raise Refused(
            Reason.NO_LAST_GOOD,
            f"{agent.layout.last_good} names no release other than the current {seal.version}",
            remedy="upgrade to the release you want with `hostsync upgrade PATH`",
        )
    check_layout(agent, observed, target)
    if target not in observed.runnable:
        raise Refused(
            Reason.NO_LAST_GOOD,
            f"{agent.layout.slot(target)} holds no sealed, executable release",
            remedy="upgrade to the release you want with `hostsync upgrade PATH`",
        )
    names = tuple(machine.name for machine in observed.machines)
    verify = (Step(act=Act.VERIFY, object=str(agent.layout.slot(target)), detail="by digest"),)
    return Plan(
        previous=current,
        previous_seal=seal,
        target=target,
        last_good=target,
        evicts=False,
        staged=False,
        restart=observed.unit.active != "inactive",
        steps=(*verify, *_switching_steps(agent, current, None, names, staged=False)),
    )


def _staging_steps(agent: Agent, wish: Wish, machines: tuple[str, ...]) -> tuple[Step, ...]:
    size = f"{wish.digest.short}, {-(-wish.size >> 20)} MiB"
    programs = ", ".join(command or agent.name for command in agent.version_commands)
    return (
        Step(act=Act.STAGE, object=wish.label, detail=size),
        Step(act=Act.VERIFY, object="on the host", detail=f"version of {programs}"),
        *(
            Step(act=Act.MIRROR, object=f"machine {m}", detail="the staged release")
            for m in machines
        ),
        *(Step(act=Act.VERIFY, object=f"in machine {m}", detail="version") for m in machines),
    )


def _switching_steps(
    agent: Agent,
    current: SlotName,
    displaced: SlotFacts | None,
    machines: tuple[str, ...],
    *,
    staged: bool,
) -> tuple[Step, ...]:
    layout, target = agent.layout, current.other
    evict: tuple[Step, ...] = ()
    if displaced is not None:
        held = displaced.seal.version if displaced.seal else "an unsealed release"
        evict = (
            Step(act=Act.EVICT, object=str(displaced.path), detail=f"{held}, until the verdict"),
        )
    place = (Step(act=Act.PLACE, object=str(layout.slot(target))),) if staged else ()
    return (
        *evict,
        *place,
        *(Step(act=Act.MIRROR, object=f"machine {m}", detail="the placed slot") for m in machines),
        Step(act=Act.LINK, object=str(layout.last_good), detail=f"-> {layout.slot(current).name}"),
        Step(act=Act.LINK, object=str(layout.current), detail=f"-> {layout.slot(target).name}"),
        *(Step(act=Act.MIRROR, object=f"machine {m}", detail="links and WANTED") for m in machines),
        Step(act=Act.JUDGE, object=agent.unit, detail=_window(agent)),
    )


def _window(agent: Agent) -> str:
    health = agent.health
    return (
        f"ready within {health.start_seconds:g} s, then healthy for {health.window_seconds:g} s, "
        "else back"
    )
