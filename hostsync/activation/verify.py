"""Runs a release to see whether it answers: on the host, and inside every machine.

Only a run inside a machine shows what a host check misses: another libc, a missing library, a
rootfs without the room or the rights.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from hostsync.activation.host import Host
from hostsync.errors import MachineError, Reason, Refused
from hostsync.model import is_version
from hostsync.ports import Completed, Worker

VERSION_SECONDS = 20.0
SELF_TEST_SECONDS = 12.0
"""The shim's own deadline is 8 s; this only catches one that ignores it."""

NOT_RUN = 125

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+[A-Za-z0-9._+~-]*)")
_PROTOCOL = re.compile(r"\bprotocol (\d{1,6})\b")
_REMEDY = "nothing was switched; order a release that runs there"


class Answer(msgspec.Struct, frozen=True):
    """What a release says of itself."""

    version: str
    protocol: int


def on_host(host: Host, content: Path) -> Answer:
    """Run `version` of every program of the release on the host.

    Raises Refused(CANDIDATE_FAILS) when one fails, hangs, or they disagree.
    """
    answers = [
        _answer(host.probe.run(argv, VERSION_SECONDS), argv, "on the host")
        for argv in _version_argvs(host, content)
    ]
    return _agreed(answers, "on the host")


def in_machine(host: Host, worker: Worker, content: Path, expected: Answer) -> None:
    """Run the same inside a machine; raises Refused when the answer is not the host's."""
    where = f"in machine {worker.name}"
    try:
        answers = [
            _answer(host.machines.run(worker, argv, VERSION_SECONDS), argv, where)
            for argv in _version_argvs(host, content)
        ]
    except MachineError as error:
        raise Refused(Reason.MACHINE_UNREADY, str(error), remedy=_REMEDY) from error
    answer = _agreed(answers, where)
    if answer != expected:
        raise Refused(
            Reason.CANDIDATE_FAILS,
            f"the release says {answer.version} {where} but {expected.version} on the host",
            remedy="look for another file bound over the slot root in the machine",
        )


def self_test(host: Host, worker: Worker, content: Path) -> int:
    """Run the release's self-test inside a machine and return its exit status.

    124 stands for one that had to be killed, NOT_RUN for one that could not be run.
    """
    program, *arguments = host.agent.self_test
    argv = (str(host.agent.layout.program(content, program)), *arguments)
    try:
        status = host.machines.run(worker, argv, SELF_TEST_SECONDS).status
    except MachineError:
        return NOT_RUN
    return 124 if status is None else status


def is_worse(before: int | None, after: int) -> bool:
    """Whether a self-test got worse: an outage that was there before is nobody's fault."""
    return after != 0 and before in (0, None)


def _version_argvs(host: Host, content: Path) -> tuple[tuple[str, ...], ...]:
    layout = host.agent.layout
    programs = (layout.program(content, c or layout.entry) for c in host.agent.version_commands)
    return tuple((str(program), "version") for program in programs)


def _answer(done: Completed, argv: tuple[str, ...], where: str) -> Answer:
    shown = " ".join((Path(argv[0]).name, *argv[1:]))
    if done.status is None:
        raise _fails(f"`{shown}` {where} did not end within {VERSION_SECONDS:g} s")
    if done.status != 0:
        said = _last_line(done.stderr) or _last_line(done.stdout) or "it said nothing"
        raise _fails(f"`{shown}` {where} ended with status {done.status}: {said}")
    version = _VERSION.search(done.stdout)
    if version is None or not is_version(version[1]):
        raise _fails(f"`{shown}` {where} printed no version")
    protocol = _PROTOCOL.search(done.stdout)
    return Answer(version[1], int(protocol[1]) if protocol else 1)


def _agreed(answers: list[Answer], where: str) -> Answer:
    if len(set(answers)) != 1:
        said = ", ".join(answer.version for answer in answers)
        raise _fails(f"the programs of the release disagree on its version {where}: {said}")
    return answers[0]


def _fails(brief: str) -> Refused:
    return Refused(Reason.CANDIDATE_FAILS, f"the candidate fails: {brief}", remedy=_REMEDY)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""
