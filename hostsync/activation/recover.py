"""What a record found on disk calls for: pure, the same for every verb, the judge and a boot."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

import msgspec

from hostsync.model import SlotName
from hostsync.record import Phase, Record


class Duty(StrEnum):
    """What must be done about a record whose writer is gone."""

    UNDO = "undo"
    """Nothing was tried yet: slots and links go back to what they were."""

    TRY = "try"
    """The switch is recorded: the judge asks for the restart and watches."""

    COMMIT = "commit"
    """The verdict was good: finish what it entails."""

    ROLL_BACK = "roll-back"
    """The verdict was bad: finish going back."""


def duty(record: Record) -> Duty:
    """What the phase on disk calls for."""
    match record.phase:
        case Phase.STAGING | Phase.SWITCHING:
            return Duty.UNDO
        case Phase.SWITCHED | Phase.TRIAL:
            return Duty.TRY
        case Phase.COMMITTING:
            return Duty.COMMIT
        case Phase.ROLLING_BACK:
            return Duty.ROLL_BACK
    assert_never(record.phase)


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """The slots that the links should name after going back.

    `degraded` says why it is not exactly what was before, empty when it is.
    """

    current: SlotName
    last_good: SlotName | None
    degraded: str = ""


def fallback(record: Record, runnable: Mapping[SlotName, bool]) -> Fallback:
    """Where to go back to, given which slots can run (the displaced release is back in place).

    Normally the previous release. When it cannot run any more, any other that can; when none
    can, the links stay on the previous one: a human is needed, and deleting helps nobody.
    """
    previous = record.previous_slot
    last_good = record.last_good_slot
    if runnable.get(previous, False):
        if last_good is not None and not runnable.get(last_good, False):
            last_good = previous
        return Fallback(current=previous, last_good=last_good)
    why = f"the previous release in slot {previous} cannot run any more"
    if runnable.get(previous.other, False):
        return Fallback(current=previous.other, last_good=previous.other, degraded=why)
    return Fallback(current=previous, last_good=last_good, degraded=f"{why}, and no other can")
