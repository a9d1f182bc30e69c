"""AgentUpgrade: an operation's release through the same transaction as any other order."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from hostsync import lock
from hostsync.activation import switch
from hostsync.activation.host import Event, Host
from hostsync.activation.intake import Proof, obtain
from hostsync.activation.orders import settle_all
from hostsync.activation.plan import NothingToDo
from hostsync.activation.stage import Options
from hostsync.errors import Busy, HostsyncError
from hostsync.operations.demand import Say, Upgrade
from hostsync.operations.operation import Operation
from hostsync.record import Source, SourceKind
from hostsync.redaction import plain
from hostsync.state import HistoryLine, Outcome

PERCENT_STEP = 10


def upgrade(
    hosts: Sequence[Host], host: Host, operation: Operation, demand: Upgrade, say: Say
) -> None:
    """Carry an upgrade out up to the switch and hand it to the judge.

    However it ends before that, the end is in the history with the operation's uid. Raises Busy
    when the host has another order in hand; then nothing was begun. Raises DiskError when not
    even the end could be written down. One that could not even be undone stays on record.
    """
    source = Source(kind=SourceKind.OPERATION, name=operation.name, uid=operation.uid)
    options = Options(allow_known_bad=demand.allow_known_bad, source=source)
    purpose = f"operation {operation.name}"
    begun = host.clock.wall()
    try:
        with lock.held(host.config.run_root, purpose):
            settle_all(hosts)
        proof = Proof(digest=demand.digest, on_fetched=_Percent(say))
        with (
            obtain(host, demand.url, proof) as given,
            lock.held(host.config.run_root, purpose),
        ):
            settle_all(hosts)
            done = switch.upgrade(_telling(host, say), given, options)
            if isinstance(done, NothingToDo):
                _end(host, source, demand, begun, Outcome.COMPLETE, done.why)
    except Busy:
        raise
    except HostsyncError as error:
        if not _has_an_end(host, operation, begun):
            _end(host, source, demand, begun, Outcome.FAILED, str(error))


def _telling(host: Host, say: Say) -> Host:
    """The same host, whose acts before the switch are said as well; later ones the record says."""

    def tell(event: Event) -> None:
        host.tell(event)
        match event.act, event.stage:
            case "stage", "started":
                say("staging the release")
            case "stage", "complete":
                say("verifying the release on the host")
            case "verify", "complete":
                say(f"verifying the release, {event.object} done")

    return msgspec.structs.replace(host, tell=tell)


def _has_an_end(host: Host, operation: Operation, begun: float) -> bool:
    """Whether the history tells how it ended, or will: a record is finished by daemon or judge."""
    record = host.record.load()
    if record is not None and record.source.uid == operation.uid:
        return True
    later = [line for line in host.state.history() if line.started_at >= begun]
    return any(line.source.uid == operation.uid for line in later)


def _end(
    host: Host, source: Source, demand: Upgrade, begun: float, outcome: Outcome, reason: str
) -> None:
    """Write the end of an order that never had a record."""
    host.state.append(
        HistoryLine(
            order=secrets.token_hex(4),
            agent=host.agent.name,
            source=source,
            version="",
            digest=demand.digest.hex,
            previous_version="",
            outcome=outcome,
            reason=plain(reason),
            started_at=begun,
            ended_at=host.clock.wall(),
        )
    )


class _Percent:
    """Says how much of a download is there, in steps."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said = -1

    def __call__(self, done: int, total: int | None) -> None:
        step = (100 * done // total) // PERCENT_STEP if total else done >> 26
        if step != self._said:
            self._said = step
            there = f"{step * PERCENT_STEP} %" if total else f"{done >> 20} MiB"
            self._say(f"fetching the release: {there}")
