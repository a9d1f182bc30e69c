"""From what the host is like and what was ordered to ordered steps, or to a refusal.

Pure: opens nothing. What `--preflight` prints and what `upgrade` does are the same steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hostsync.config import Agent
from hostsync.errors import Reason, Refused
from hostsync.links import LinkCondition, LinkFacts
from hostsync.model import Digest, Seal, SlotName
from hostsync.ports import Space, UnitState
from hostsync.slots import Condition, SlotFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A running worker before the switch: free bytes of its rootfs, or why it is unready.

    `device` tells filesystems apart: a release needs room once for each copy on one of them.
    """

    name: str
    free: int | None
    device: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The host at one instant, as far as a plan depends on it."""

    space: Space
    slots: Mapping[SlotName, SlotFacts]
    runnable: frozenset[SlotName]
    current: LinkFacts
    last_good: LinkFacts
    commands: tuple[LinkFacts, ...]
    unit: UnitState
    machines: tuple[MachineFacts, ...]
    machines_problem: str
    """Why the machines of this host cannot be told, empty when they can."""
    known_bad: Mapping[str, str]
    """Why a release was judged bad, by its content digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was ordered: a release by content, its installed size in bytes, and the options."""

    digest: Digest
    size: int
    label: str
    allow_known_bad: bool = False
    best_effort: bool = False


class Act(StrEnum):
    """What a step does."""

    STAGE = "stage"
    VERIFY = "verify"
    MIRROR = "mirror"
    EVICT = "evict"
    PLACE = "place"
    LINK = "link"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act of a plan; `act` is the glossary's word, `object` what it acts on."""

    act: Act
    object: str
    detail: str = ""

    def describe(self) -> str:
        """The step in one line, for people."""
        return f"{self.act.value:<10} {self.object}" + (f"  {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A switch that may go ahead, and its steps in order."""

    previous: SlotName
    previous_seal: Seal
    target: SlotName
    last_good: SlotName | None
    evicts: bool
    staged: bool
    restart: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo:
    """The host is as ordered already."""

    why: str


def plan_upgrade(
    agent: Agent, observed: Observed, wish: Wish, *, reserve: int
) -> Plan | NothingToDo:
    """Plan the switch to a candidate that has yet to be staged.

    Raises Refused, naming the path, the limit and the remedy; then nothing was changed.
    """
    current, seal = _check_installed(agent, observed)
    if seal.sha256 == wish.digest:
        return NothingToDo(why=f"{agent.name} {seal.version} is current already")
    target = current.other
    _check_layout(agent, observed, target)
    _check_known_bad(observed, wish)
    check_space(agent, observed.space, wish.size, reserve)
    _check_machines(observed, wish, reserve)
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
    current, seal = _check_installed(agent, observed)
    target = observed.last_good.slot
    if target is None or target is current:
        raise Refused(
            Reason.NO_LAST_GOOD,
            f"{agent.layout.last_good} names no release other than the current {seal.version}",
            remedy="upgrade to the release you want with `hostsync upgrade PATH`",
        )
    _check_layout(agent, observed, target)
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


def _check_installed(agent: Agent, observed: Observed) -> tuple[SlotName, Seal]:
    if observed.unit.load != "loaded":
        raise Refused(
            Reason.NOT_INSTALLED,
            f"systemd cannot load {agent.unit} ({observed.unit.load}), so nothing could be judged",
            remedy=f"mend it, or set agents.{agent.name}.unit",
        )
    link = observed.current
    if link.condition is LinkCondition.LINK and link.slot is not None:
        facts = observed.slots[link.slot]
        if facts.seal is not None and link.slot in observed.runnable:
            return link.slot, facts.seal
        raise Refused(
            Reason.NOT_INSTALLED,
            f"{link.path} leads to {facts.path}, which holds no sealed, executable release"
            + (f" ({facts.detail})" if facts.detail else ""),
            remedy=f"run `hostsync install PATH --agent {agent.name}` to repair it",
        )
    raise Refused(
        Reason.NOT_INSTALLED,
        f"{agent.name} is not installed: {link.path} is "
        + (
            "missing"
            if link.condition is LinkCondition.ABSENT
            else f"not ours ({link.detail or link.target})"
        ),
        remedy=f"run `hostsync install PATH --agent {agent.name}` first",
    )


def _check_layout(agent: Agent, observed: Observed, target: SlotName) -> None:
    for facts in observed.slots.values():
        if facts.condition is Condition.IN_THE_WAY:
            raise Refused(
                Reason.IN_THE_WAY,
                f"refusing to use the slot {facts.path}: {facts.detail}",
                remedy="move it aside",
            )
    inodes = [f.inode for f in observed.slots.values() if f.inode is not None]
    if len(inodes) != len(set(inodes)):
        raise Refused(
            Reason.SLOT_ALIAS,
            f"the slots of {agent.layout.root} are one and the same file",
            remedy="remove the alias of the current slot",
        )
    if target is observed.current.slot:
        raise Refused(Reason.SLOT_ALIAS, f"{agent.layout.slot(target)} is in use")
    for link in (observed.last_good, *observed.commands):
        check_replaceable(link)


def check_replaceable(link: LinkFacts) -> None:
    """Refuse when something other than a link (or nothing) stands where a link goes."""
    if link.condition in (LinkCondition.IN_THE_WAY, LinkCondition.FILE):
        raise Refused(
            Reason.IN_THE_WAY,
            f"refusing to replace {link.path}: {link.detail}; an atomic switch needs a link there",
            remedy="move it aside",
        )


def _check_known_bad(observed: Observed, wish: Wish) -> None:
    reason = observed.known_bad.get(wish.digest.hex)
    if reason is not None and not wish.allow_known_bad:
        raise Refused(
            Reason.KNOWN_BAD,
            f"release {wish.digest.short} was judged bad on this host: {reason}",
            remedy="order another release, or this one with --allow-known-bad",
        )


def check_space(agent: Agent, space: Space, size: int, reserve: int) -> None:
    """Refuse when the slots' filesystem cannot take a release of that size."""
    root = agent.layout.root
    if space.read_only:
        raise Refused(
            Reason.READ_ONLY,
            f"the filesystem of {root} is mounted read-only",
            remedy=f"set agents.{agent.name}.slot_root to a writable place such as /opt/hostsync",
        )
    if space.noexec:
        raise Refused(
            Reason.NO_EXEC,
            f"the filesystem of {root} is mounted noexec",
            remedy=f"set agents.{agent.name}.slot_root to a place that allows execution",
        )
    check_room(root, space.free, size, reserve)


def check_room(where: Path | str, free: int, size: int, reserve: int) -> None:
    """Refuse when a release and the reserve for a roll back do not fit."""
    if free < size + reserve:
        raise Refused(
            Reason.NO_SPACE,
            f"{where} has {free >> 20} MiB free; the release needs {-(-size >> 20)} MiB "
            f"and {reserve >> 20} MiB are kept for a roll back",
            remedy="free space there and order again",
        )


def _check_machines(observed: Observed, wish: Wish, reserve: int) -> None:
    if wish.best_effort:
        return
    remedy = "mend that, or order with --machines-best-effort"
    if observed.machines_problem:
        raise Refused(Reason.MACHINE_UNREADY, observed.machines_problem, remedy=remedy)
    copies = Counter([observed.space.device])
    for machine in observed.machines:
        if machine.problem:
            raise Refused(Reason.MACHINE_UNREADY, machine.problem, remedy=remedy)
        if machine.free is not None:
            copies[machine.device] += 1
            where = f"the filesystem of machine {machine.name}'s rootfs"
            check_room(where, machine.free, wish.size * copies[machine.device], reserve)


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
