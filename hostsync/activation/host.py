"""The host as the transaction acts on it: its ports, and the files of one agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from hostsync.config import Agent, Config
from hostsync.ports import Clock, Fs, Machines, Probe, Units
from hostsync.record import Record, RecordFile
from hostsync.state import State

Stage = Literal["started", "complete", "failed"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an order; `at` in seconds since the epoch."""

    at: float
    act: str
    stage: Stage
    object: str = ""
    detail: str = ""


Tell = Callable[[Event], None]
"""Takes events as they happen: the command line prints them, the journal keeps them."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the transaction touches for one agent, passed in by the composition root."""

    config: Config
    agent: Agent
    fs: Fs
    units: Units
    probe: Probe
    clock: Clock
    machines: Machines
    record: RecordFile
    state: State
    tell: Tell

    def event(self, act: str, stage: Stage, object: str = "", detail: str = "") -> None:  # noqa: A002 - the glossary's word
        """Tell what happens, with the time it happened at."""
        self.tell(Event(at=self.clock.wall(), act=act, stage=stage, object=object, detail=detail))

    def put(self, record: Record) -> Record:
        """Store a record and return it."""
        self.record.store(record)
        return record
