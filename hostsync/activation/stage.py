"""Staging: a candidate beside the slots, asked on the host and inside every machine, sealed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hostsync.activation import verify
from hostsync.activation.host import Host
from hostsync.errors import HostsyncError, MachineError, Reason, Refused
from hostsync.model import Seal
from hostsync.ports import View, Worker
from hostsync.record import Source
from hostsync.release import Candidate
from hostsync.release.version import is_lower
from hostsync.sync import converge_rootfs


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What an order may ask beside the release."""

    allow_known_bad: bool = False
    best_effort: bool = False
    source: Source = msgspec.field(default_factory=Source)


def stage_and_verify(
    host: Host,
    candidate: Candidate,
    staging: Path,
    options: Options,
    *,
    current: str,
    in_mirrors: bool,
) -> tuple[Seal, dict[str, int]]:
    """Secure what was unpacked, ask it, seal it, and ask it again inside the machines.

    `current` is the version in use.
    Returns the seal and the exit status of the *current* release's self-test per machine.
    """
    inspected = candidate.inspect()
    candidate.secure(staging, host.fs)
    host.event("stage", "complete", str(staging), inspected.content_digest.short)
    answer = verify.on_host(host, staging)
    host.event("verify", "complete", "on the host", answer.version)
    if not host.config.trust.allow_downgrade:
        check_not_lower(answer.version, current)
    seal = Seal(
        agent=host.agent.name,
        version=answer.version,
        sha256=inspected.content_digest,
        protocol=answer.protocol,
    )
    host.fs.write(host.agent.layout.seal(staging), seal.to_bytes(), 0o644)
    followers = workers(host, options)
    before = self_tests(host, followers)
    for worker in followers:
        with _forgiven(host, worker, best_effort=options.best_effort):
            if worker.rootfs is not None and (in_mirrors or not _is_bound(host, worker)):
                converge_rootfs(host.machines, host.agent, worker.rootfs)
                host.event("mirror", "complete", f"machine {worker.name}", "staged release")
            verify.in_machine(host, worker, staging, answer)
            _compare_self_test(host, worker, staging, before)
            host.event("verify", "complete", f"in machine {worker.name}", answer.version)
    return seal, before


def check_not_lower(version: str, current: str) -> None:
    """Refuse (downgrade) a version that is lower than the current one, or not comparable to it.

    An old release that was signed once could otherwise be offered again for its known faults.
    """
    try:
        if not is_lower(version, current):
            return
        why = f"version {version} is lower than the current {current}"
    except ValueError as error:
        why = f"{version} cannot be compared with the current {current}: {error}"
    remedy = "order a newer release, or set release.allow_downgrade"
    raise Refused(Reason.DOWNGRADE, f"refusing the candidate: {why}", remedy=remedy)


def clear_mirrors(host: Host) -> None:
    """Take the staged candidate out of the mirrors that had to have it to be asked."""
    with suppress(MachineError):
        for worker in host.machines.running():
            with suppress(MachineError):
                if worker.rootfs is not None and not _is_bound(host, worker):
                    converge_rootfs(host.machines, host.agent, worker.rootfs)


def self_tests(host: Host, followers: tuple[Worker, ...]) -> dict[str, int]:
    """Exit status of the current release's self-test in each machine."""
    if not host.agent.self_test:
        return {}
    current = host.agent.layout.current
    return {worker.name: verify.self_test(host, worker, current) for worker in followers}


def workers(host: Host, options: Options) -> tuple[Worker, ...]:
    """The machines that must follow; none on request when machined cannot be asked."""
    try:
        return host.machines.running()
    except MachineError:
        if options.best_effort:
            return ()
        raise


def _is_bound(host: Host, worker: Worker) -> bool:
    return host.machines.see(worker, host.agent.layout.root).view is View.BIND


def _compare_self_test(host: Host, worker: Worker, content: Path, before: dict[str, int]) -> None:
    if not host.agent.self_test or before.get(worker.name) != 0:
        return
    after = verify.self_test(host, worker, content)
    if verify.is_worse(0, after):
        raise Refused(
            Reason.CANDIDATE_FAILS,
            f"the candidate's credential self-test in machine {worker.name} ended with status "
            f"{after}; the current release's succeeds there",
            remedy="nothing was switched; order a release whose self-test succeeds",
        )


@contextmanager
def _forgiven(host: Host, worker: Worker, *, best_effort: bool) -> Iterator[None]:
    try:
        yield
    except HostsyncError as error:
        unready = isinstance(error, Refused) and error.reason is Reason.MACHINE_UNREADY
        if not best_effort or not (unready or isinstance(error, MachineError)):
            raise
        host.event("verify", "failed", f"machine {worker.name}", f"{error} (best effort)")
