"""The host and the order as a plan sees them: values only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hostsync.links import LinkFacts
from hostsync.model import Digest, SlotName
from hostsync.ports import Space, UnitState
from hostsync.slots import SlotFacts


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A running worker before the switch: free bytes of its rootfs, or why it is unready.

    `device` tells filesystems apart: a release needs room once for each copy on one of them.
    """

    name: str
    free: int | None
    device: int = 0
    problem: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
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


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was ordered: a release by content, its installed size in bytes, and the options."""

    digest: Digest
    size: int
    label: str
    allow_known_bad: bool = False
    best_effort: bool = False
