"""Why an order is refused: each check passes in silence, or names path, limit and remedy.

Pure: opens nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hostsync.activation.facts import Observed, Wish
from hostsync.config import Agent
from hostsync.errors import Reason, Refused
from hostsync.links import LinkCondition, LinkFacts
from hostsync.model import Seal, SlotName
from hostsync.ports import Space
from hostsync.slots import Condition


def check_installed(agent: Agent, observed: Observed) -> tuple[SlotName, Seal]:
    """The slot in use and its seal; refuse when there is none, or systemd could not run it."""
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


def check_ready(
    agent: Agent, observed: Observed, size: int, *, reserve: int, best_effort: bool
) -> None:
    """Refuse when the host can take no release of `size` bytes, whichever it is."""
    current, _ = check_installed(agent, observed)
    check_layout(agent, observed, current.other)
    check_space(agent, observed.space, size, reserve)
    if not best_effort:
        check_machines(observed, size, reserve)


def check_layout(agent: Agent, observed: Observed, target: SlotName) -> None:
    """Refuse when something stands where slots and links go, or two of them are one."""
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


def check_known_bad(observed: Observed, wish: Wish) -> None:
    """Refuse a release that was judged bad here, unless the order insists."""
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


def check_machines(observed: Observed, size: int, reserve: int) -> None:
    """Refuse when a machine is unready or has no room for its copy."""
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
            check_room(where, machine.free, size * copies[machine.device], reserve)
