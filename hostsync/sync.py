"""What each machine should see, and making it so: the bind, the mirror beneath it, the links.

A switch on the host is a switch in a machine at once through the bind. The mirror is what the
machine sees whenever the bind is absent; it is kept equal to the host by `convergence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from hostsync.config import Agent
from hostsync.convergence import Link, Listing, Move, Put, Remove, Step, Wanted, converge
from hostsync.errors import MachineError
from hostsync.layout import EVICTED_PREFIX, SEAL_NAME, STAGING_PREFIX, WANTED_NAME, Layout
from hostsync.links import command_target
from hostsync.links import observe as observe_link
from hostsync.model import SEAL_LIMIT, Seal, SlotKind, SlotName, tree_digest
from hostsync.ports import Machines, Mirror, Seen, View, Worker
from hostsync.slots import observe as observe_slot
from hostsync.slots import read_small

_OURS = (".hostsync-",)
_SEAL_SUFFIX = f".{SEAL_NAME}"


class MachineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one machine: what it sees, whether that is what the host selects.

    `release` is the version seen inside, empty when none is. `mirrored` says whether the
    fallback beneath the bind equals the host. `problem` is empty when in step.
    """

    name: str
    view: View
    release: str
    mirrored: bool
    in_step: bool
    problem: str = ""
    note: str = ""


def host_listing(layout: Layout) -> Listing:
    """The slot root of the host as a mirror should have it."""
    contents = [layout.slot(name) for name in SlotName]
    with suppress(FileNotFoundError):
        contents += [
            path
            for path in sorted(layout.root.iterdir())
            if path.name.startswith((STAGING_PREFIX, EVICTED_PREFIX))
            and not (layout.kind is SlotKind.FILE and path.name.endswith(_SEAL_SUFFIX))
        ]
    seals = {path.name: observe_slot(layout, path).seal for path in contents}
    links = {p.name: observe_link(layout, p).target or None for p in _links(layout)}
    return Listing(
        entries={name: seal.to_bytes() for name, seal in seals.items() if seal is not None},
        links=links,
        wanted=current_seal(layout),
    )


def current_seal(layout: Layout) -> bytes | None:
    """The bytes of the seal that the host selects, None when nothing is installed."""
    target = observe_link(layout, layout.current).slot
    return None if target is None else read_small(layout.seal(layout.slot(target)), SEAL_LIMIT)


def synchronise(
    machines: Machines, agent: Agent, worker: Worker, *, deep: bool = False, tidy: bool = True
) -> MachineReport:
    """Bring one machine in step with the host and say what it sees then.

    With `deep` the mirror's content is compared by digest and not only by seal; without `tidy`
    what is merely left over in it stays. Trouble with
    the bind is a note as long as the mirror serves; raises MachineError when neither does.
    Before anything is installed on the host there is nothing to see, and nothing is touched.
    """
    if current_seal(agent.layout) is None:
        return _nothing_installed(worker)
    note = ""
    if worker.rootfs is None:
        note = "no writable rootfs: bind only"
    else:
        converge_rootfs(machines, agent, worker.rootfs, deep=deep, tidy=tidy)
    root = agent.layout.root
    if worker.bindable:
        if machines.see(worker, root).view is not View.BIND:
            try:
                machines.bind(worker, root)
            except MachineError as error:
                if worker.rootfs is None:
                    raise
                note = str(error)
    else:
        note = worker.why_not
    return inspect(machines, agent, worker, note=note)


def inspect(
    machines: Machines, agent: Agent, worker: Worker, *, note: str = "", deep: bool = False
) -> MachineReport:
    """Say what one machine sees, changing nothing; never raises, a problem is in the report."""
    layout = agent.layout
    if current_seal(layout) is None:
        return _nothing_installed(worker)
    try:
        seen = machines.see(worker, layout.root)
        inside = _seal_inside(machines, layout, worker)
        mirrored = worker.rootfs is None or _mirrored(machines, agent, worker.rootfs, deep=deep)
    except MachineError as error:
        return MachineReport(
            name=worker.name,
            view=View.NONE,
            release="",
            mirrored=False,
            in_step=False,
            problem=str(error),
            note=note,
        )
    wanted = current_seal(layout)
    problem = _problem(seen, inside, wanted, worker, mirrored=mirrored)
    return MachineReport(
        name=worker.name,
        view=seen.view,
        release=_version(inside),
        mirrored=mirrored,
        in_step=not problem,
        problem=problem,
        note=note or worker.why_not or _oddity(seen),
    )


def converge_rootfs(
    machines: Machines, agent: Agent, rootfs: Path, *, deep: bool = False, tidy: bool = True
) -> tuple[Step, ...]:
    """Make the mirror in a rootfs equal to the host; works on a stopped machine as well.

    Returns the steps that were taken. Raises MachineError.
    """
    layout = agent.layout
    host = host_listing(layout)
    if host.wanted is None:
        return ()
    with machines.mirror(rootfs, layout.root, create=True) as mirror:
        mirror.sweep()
        needed = converge(host, _mirror_listing(layout, mirror, deep=deep))
        steps = tuple(step for step in needed if tidy or not isinstance(step, Remove))
        for step in steps:
            _carry_out(layout, mirror, step)
    link_commands(machines, agent, rootfs)
    return steps


def link_commands(machines: Machines, agent: Agent, rootfs: Path) -> None:
    """Lay the compatibility links in a rootfs; each is one rename. Raises MachineError."""
    for command in agent.commands:
        if command.in_machine:
            with machines.mirror(rootfs, command.path.parent, create=True) as mirror:
                _link_command(
                    mirror, agent.layout, command.path.name, command_target(agent.layout, command)
                )


def _nothing_installed(worker: Worker) -> MachineReport:
    note = "nothing is installed on the host"
    return MachineReport(
        name=worker.name, view=View.NONE, release="", mirrored=True, in_step=True, note=note
    )


def _link_command(mirror: Mirror, layout: Layout, name: str, target: str) -> None:
    """A copy of a single-file agent that was put there before hostsync gives way to the link."""
    is_link = mirror.names().get(name) == "link"
    if not is_link or mirror.read_link(name) != target:
        mirror.put_link(name, target, replace_file=layout.kind is SlotKind.FILE)


def _mirrored(machines: Machines, agent: Agent, rootfs: Path, *, deep: bool) -> bool:
    with machines.mirror(rootfs, agent.layout.root, create=False) as mirror:
        there = _mirror_listing(agent.layout, mirror, deep=deep)
    needed = converge(host_listing(agent.layout), there)
    return all(isinstance(step, Remove) for step in needed)


def _mirror_listing(layout: Layout, mirror: Mirror, *, deep: bool) -> Listing:
    names = mirror.names()
    contents = _contents(layout, names)
    return Listing(
        entries={
            name: _valid_seal(layout, mirror, name, deep=deep) if name in names else None
            for name in contents
        },
        links={p.name: mirror.read_link(p.name) for p in _links(layout)},
        wanted=mirror.read_file(WANTED_NAME, SEAL_LIMIT),
    )


def _contents(layout: Layout, names: Iterable[str]) -> list[str]:
    """The slot-like things among the names of a mirror.

    A seal of a single file that lost its content to a killed rename stands for the content,
    so that it is taken away with it.
    """
    slots = {layout.slot(slot).name for slot in SlotName}
    ours = {n for n in names if n in slots or n.startswith(_OURS)}
    if layout.kind is SlotKind.FILE:
        ours = {n.removesuffix(_SEAL_SUFFIX) for n in ours}
    return sorted(ours)


def _valid_seal(layout: Layout, mirror: Mirror, name: str, *, deep: bool) -> bytes | None:
    seal_path = layout.seal(Path(name))
    try:
        data = mirror.read_file(str(seal_path), SEAL_LIMIT)
        seal = None if data is None else Seal.from_bytes(data)
        if seal is None or (deep and tree_digest(mirror.entries(name)) != seal.sha256):
            return None
    except (MachineError, ValueError):
        return None
    return data


def _carry_out(layout: Layout, mirror: Mirror, step: Step) -> None:
    match step:
        case Put(source, name):
            pairs = zip(layout.parts(layout.root / source), layout.parts(Path(name)), strict=True)
            for origin, part in pairs:
                mirror.remove(str(part))
                mirror.put_tree(str(part), origin)
        case Move(old, new):
            pairs = zip(layout.parts(Path(old)), layout.parts(Path(new)), strict=True)
            there = mirror.names()
            for before, after in pairs:
                if str(before) in there:
                    mirror.rename(str(before), str(after))
        case Remove(name):
            for part in reversed(layout.parts(Path(name))):
                mirror.remove(str(part))
        case Link(name, target):
            mirror.put_link(name, target)
        case Wanted(seal):
            mirror.put_file(WANTED_NAME, seal, 0o644)


def _problem(
    seen: Seen, inside: bytes | None, wanted: bytes | None, worker: Worker, *, mirrored: bool
) -> str:
    if seen.view is View.NONE or inside is None:
        return f"machine {worker.name} sees no release"
    if seen.view is View.BIND and not seen.read_only:
        return f"machine {worker.name} has the slot root bound writable; restart the machine"
    if inside != wanted:
        return (
            f"machine {worker.name} is skewed: it sees {_version(inside) or 'an unreadable seal'}, "
            f"the host selects {_version(wanted) or 'nothing'}"
        )
    if not mirrored:
        return f"machine {worker.name}: the mirror beneath the bind differs from the host"
    return ""


def _oddity(seen: Seen) -> str:
    """What is harmless but should not be: only a restart of the machine takes mounts away."""
    if seen.view is View.BIND and seen.depth > 1:
        return f"bound {seen.depth} times over; a restart of the machine clears that"
    return ""


def _version(seal: bytes | None) -> str:
    if seal is None:
        return ""
    with suppress(ValueError):
        return Seal.from_bytes(seal).version
    return ""


def _links(layout: Layout) -> Iterable[Path]:
    return (layout.current, layout.last_good)


def _seal_inside(machines: Machines, layout: Layout, worker: Worker) -> bytes | None:
    target = machines.read_link(worker, layout.current)
    slot = None if target is None else layout.slot_of(target)
    if slot is None:
        return None
    return machines.read_file(worker, layout.seal(layout.slot(slot)), SEAL_LIMIT)
