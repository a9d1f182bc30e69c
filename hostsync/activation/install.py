"""The first release on a host: adopt what is there, or start afresh.

Every step is repeatable, so a killed installation is finished by running it again. There is no
record: nothing runs from the slots before the links are there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hostsync import assets, links, slots
from hostsync.activation import verify
from hostsync.activation.facts import Observed
from hostsync.activation.host import Host
from hostsync.activation.observe import observe
from hostsync.activation.refusals import check_replaceable, check_space
from hostsync.activation.restore import mirror_all, point
from hostsync.activation.service import run_job
from hostsync.errors import HostsyncError, Reason, Refused
from hostsync.layout import TRASH_PREFIX
from hostsync.links import LinkCondition, command_target
from hostsync.model import Digest, Seal, SlotKind, SlotName, tree_digest
from hostsync.ports import UnitVerb
from hostsync.release import Given, open_candidate, scan
from hostsync.slots import Condition

_ORDER = "install"


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation came to.

    `problems` are machines that could not follow, and a service that did not get ready.
    """

    version: str
    slot: SlotName
    adopted: bool
    problems: tuple[str, ...]


def install(host: Host, given: Given | None, *, start: bool) -> Installed:
    """Install the release that is given, or adopt what the host has; the caller holds the lock.

    Without one, a single-file agent is adopted: the slots it has already, or the file at its
    compatibility path. With `start`, hostsync's own service is waited for until it is ready, for
    its start deadline at most. Raises Refused, and then nothing was changed.
    """
    layout = host.agent.layout
    observed = observe(host)
    _check_places(host, observed)
    current = observed.current.slot
    if current is not None and _in_use(host, observed, current, given):
        slot, adopted = _adopt_slots(host, current, observed.last_good.slot, given), True
    else:
        source, adopted = _source(host, given)
        slot = _stage(host, source)
    _select(host, slot)
    host.fs.sweep(layout.root, TRASH_PREFIX)
    problems = mirror_all(host)
    if host.agent.owns_assets:
        _converge_assets(host, slot)
        problems += _started(host) if start else ()
    seal = slots.observe(layout, layout.slot(slot)).seal
    version = seal.version if seal is not None else ""
    return Installed(version=version, slot=slot, adopted=adopted, problems=problems)


def _check_places(host: Host, observed: Observed) -> None:
    """Refuse before anything is changed when something stands where slots and links go."""
    for link in (observed.current, observed.last_good):
        check_replaceable(link)
    for command in observed.commands:
        adoptable = command.condition is LinkCondition.FILE
        if not (adoptable and host.agent.layout.kind is SlotKind.FILE):
            check_replaceable(command)
    for facts in observed.slots.values():
        if facts.condition is Condition.IN_THE_WAY:
            raise Refused(
                Reason.IN_THE_WAY,
                f"refusing to use the slot {facts.path}: {facts.detail}",
                remedy="move it aside",
            )


def _in_use(host: Host, observed: Observed, slot: SlotName, given: Given | None) -> bool:
    """Whether a slot holds a release that counts, sealed or not.

    What cannot run, or a bundle that lost its seal, counts only while no release is named that
    could take its place.
    """
    if observed.slots[slot].condition is Condition.EMPTY:
        return False
    if given is None or slot in observed.runnable:
        return True
    if host.agent.layout.kind is SlotKind.BUNDLE:
        return False
    try:
        verify.on_host(host, host.agent.layout.slot(slot))
    except HostsyncError:
        return False
    return True


def _check_not_lost(host: Host, digest: Digest) -> None:
    """Refuse to replace a file at a compatibility path by a link to another release."""
    for command in host.agent.commands:
        found = links.observe(host.agent.layout, command.path)
        if found.condition is LinkCondition.FILE and tree_digest(scan(command.path)) != digest:
            raise Refused(
                Reason.NOT_OURS,
                f"{command.path} is a file of another release, which would be lost",
                remedy="adopt it with `hostsync install`, then use `hostsync upgrade PATH`",
            )


def _source(host: Host, given: Given | None) -> tuple[Given, bool]:
    if given is not None:
        return given, False
    if host.agent.layout.kind is SlotKind.FILE:
        for command in host.agent.commands:
            if links.observe(host.agent.layout, command.path).condition is LinkCondition.FILE:
                return command.path, True
    raise Refused(
        Reason.BAD_CANDIDATE,
        f"there is nothing to adopt for {host.agent.name} on this host",
        remedy="name the release: `hostsync install PATH`",
    )


def _adopt_slots(
    host: Host, current: SlotName, last_good: SlotName | None, given: Given | None
) -> SlotName:
    """Seal the slots that are in use; with one given, only if it is the release in use."""
    layout = host.agent.layout
    in_use = layout.slot(current)
    if given is not None:
        with open_candidate(given, agent=host.agent.name, kind=layout.kind) as candidate:
            if candidate.inspect().content_digest != tree_digest(scan(in_use)):
                raise Refused(
                    Reason.NOT_OURS,
                    f"{layout.current} leads to another release in {in_use} already",
                    remedy="use `hostsync upgrade PATH`",
                )
    for slot in {current, last_good or current}:
        content = layout.slot(slot)
        if slots.observe(layout, content).condition is Condition.UNSEALED:
            _seal(host, content, tree_digest(scan(content)))
    return current


def _stage(host: Host, given: Given) -> SlotName:
    layout = host.agent.layout
    with open_candidate(given, agent=host.agent.name, kind=layout.kind) as candidate:
        digest = candidate.inspect().content_digest
        _check_not_lost(host, digest)
        for name in SlotName:
            seal = slots.observe(layout, layout.slot(name)).seal
            if seal is not None and seal.sha256 == digest:
                return name
        space = host.probe.space(layout.root)
        check_space(host.agent, space, candidate.inspect().size, host.config.reserve_bytes)
        host.fs.make_directory(layout.root)
        staging = layout.staging(_ORDER)
        slots.discard(host.fs, layout, staging, _ORDER)
        candidate.stage(staging, host.fs)
        host.event("stage", "complete", str(staging), digest.short)
        try:
            _seal(host, staging, digest)
        except BaseException:
            slots.discard(host.fs, layout, staging, _ORDER)
            host.fs.sweep(layout.root, TRASH_PREFIX)
            raise
    target = _free_slot(host)
    slots.discard(host.fs, layout, layout.slot(target), _ORDER)
    slots.install(host.fs, layout, staging, layout.slot(target))
    return target


def _free_slot(host: Host) -> SlotName:
    """Blue unless it holds a sealed release: what is valid is not what an installation removes."""
    layout = host.agent.layout
    sealed = slots.observe(layout, layout.slot(SlotName.BLUE)).sealed
    return SlotName.GREEN if sealed else SlotName.BLUE


def _seal(host: Host, content: Path, digest: Digest) -> None:
    answer = verify.on_host(host, content)
    host.event("verify", "complete", str(content), answer.version)
    seal = Seal(
        agent=host.agent.name, version=answer.version, sha256=digest, protocol=answer.protocol
    )
    host.fs.write(host.agent.layout.seal(content), seal.to_bytes(), 0o644)


def _select(host: Host, slot: SlotName) -> None:
    layout = host.agent.layout
    last_good = links.observe(layout, layout.last_good).slot
    if last_good is None or not slots.runnable(layout, layout.slot(last_good)):
        last_good = slot
    point(host, last_good, links_of="last-good")
    point(host, slot, links_of="current")
    for command in host.agent.commands:
        target = command_target(layout, command)
        if command.on_host and links.observe(layout, command.path).target != target:
            host.fs.make_directory(command.path.parent)
            host.fs.link(command.path, target)
            host.event("link", "complete", str(command.path), f"-> {target}")


def _converge_assets(host: Host, slot: SlotName) -> None:
    content = host.agent.layout.slot(slot)
    wanted = assets.of_release(host.config, host.agent, content)
    assets.converge(host.fs, wanted)
    # Killed after the last write, a repetition finds nothing to write: systemd is always told.
    host.units.reload()
    host.units.enable(assets.ENABLED)


def _started(host: Host) -> tuple[str, ...]:
    """Start the service and wait until it is ready; why it is not, if so.

    The caller's lock does not keep it from getting ready: its first look skips what is locked.
    """
    unit, deadline = host.agent.unit, host.agent.health.start_seconds
    if host.units.state(unit).active == "active":
        return ()
    host.event("start", "started", unit)
    result = run_job(host, UnitVerb.START, unit, deadline)
    if result == "done":
        host.event("start", "complete", unit)
        return ()
    why = f"is not ready after {deadline:g} s" if result == "timeout" else "did not start"
    host.event("start", "failed", unit, why)
    return (f"{unit} {why}; systemd goes on trying, `journalctl -u {unit}` tells more",)
