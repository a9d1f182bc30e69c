"""How a mirror becomes what the host is: pure, from two listings to ordered steps.

Releases are recognised by their seals, so that a slot the mirror already has under another
name is renamed and not copied: a switch and a roll back are renames on both sides. The steps
keep `current` of the mirror on a complete release for as long as the mirror has one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

PARK_PREFIX = ".hostsync-park-"
NEW_PREFIX = ".hostsync-new-"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A slot root by content.

    `entries` maps the name of each slot-like thing to the bytes of its valid seal, or None for
    something without one; `links` maps link names to their targets, None for anything else
    that stands there; `wanted` are the bytes of WANTED, None when it is absent.
    """

    entries: Mapping[str, bytes | None]
    links: Mapping[str, str | None]
    wanted: bytes | None = None


class Put(msgspec.Struct, frozen=True):
    """Copy the host's entry `source` to `name` in the mirror."""

    source: str
    name: str


class Move(msgspec.Struct, frozen=True):
    """Rename an entry within the mirror."""

    old: str
    new: str


class Remove(msgspec.Struct, frozen=True):
    """Delete an entry of the mirror."""

    name: str


class Link(msgspec.Struct, frozen=True):
    """Repoint a link of the mirror, atomically."""

    name: str
    target: str


class Wanted(msgspec.Struct, frozen=True):
    """Tell the mirror which release the host selects."""

    seal: bytes


Step = Put | Move | Remove | Link | Wanted


def converge(host: Listing, mirror: Listing) -> tuple[Step, ...]:
    """The steps that make `mirror` what `host` is; none when it is so already.

    Copies come first (they can fail for want of space), then renames, then the links, WANTED,
    and what is left over goes last. Repeating after a kill at any step converges. Releases of
    the host without a valid seal are not mirrored.
    """
    wanted_here = {name: seal for name, seal in host.entries.items() if seal is not None}
    wrong = sorted(n for n, seal in mirror.entries.items() if seal != wanted_here.get(n, b""))
    missing = sorted(n for n in wanted_here if n in wrong or n not in mirror.entries)
    taken = set(mirror.entries)
    place = {name: name for name in wrong}
    sources = _reusable({n: wanted_here[n] for n in missing}, {n: mirror.entries[n] for n in wrong})

    copies: list[Step] = []
    for name in missing:
        if name not in sources:
            sources[name] = copy = _fresh(NEW_PREFIX + name, taken)
            place[copy] = copy
            copies.append(Put(name, copy))
    clears: list[Step] = []
    for name in missing:
        if name in wrong:
            place[name] = _fresh(PARK_PREFIX + name, taken)
            clears.append(Move(name, place[name]))
    fills = [Move(place[sources[name]], name) for name in missing]
    leftovers = [Remove(place[name]) for name in wrong if name not in sources.values()]
    return (*copies, *clears, *fills, *_selection(host, mirror), *leftovers)


def _reusable(missing: Mapping[str, bytes], wrong: Mapping[str, bytes | None]) -> dict[str, str]:
    """For each missing name an entry of the mirror, under a wrong name, with the same seal."""
    spare = {n: seal for n, seal in wrong.items() if seal is not None}
    found: dict[str, str] = {}
    for name, seal in missing.items():
        source = next((n for n, have in spare.items() if have == seal), None)
        if source is not None:
            found[name] = source
            del spare[source]
    return found


def _fresh(base: str, taken: set[str]) -> str:
    """A name that nothing in the mirror has, not even a leftover of a killed run."""
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}.{count}"
    taken.add(name)
    return name


def _selection(host: Listing, mirror: Listing) -> list[Step]:
    """The links and WANTED: last-good before current, as on the host."""
    steps: list[Step] = [
        Link(name, target)
        for name, target in sorted(host.links.items(), reverse=True)
        if target is not None and mirror.links.get(name) != target
    ]
    if host.wanted is not None and host.wanted != mirror.wanted:
        steps.append(Wanted(host.wanted))
    return steps
