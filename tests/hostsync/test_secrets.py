"""A secret that a release logs, says or is near to never ends in what hostsync keeps or prints."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync import render
from hostsync.activation import switch
from hostsync.activation.host import Host
from hostsync.activation.stage import Options
from hostsync.activation.trial import EVIDENCE_LINES, settle
from hostsync.errors import Refused
from hostsync.model import SlotKind
from hostsync.probe import JOURNAL_LINE, SystemProbe
from hostsync.state import HistoryLine
from hostsync.status import gather
from tests.hostsync.world import PlayedProbe, World, installed, make_world

CANARY = "canary-7f3a"
SECRETS = (
    f"client_secret={CANARY}",
    f"Authorization: Bearer {CANARY}",
    f'{{"access_token":"{CANARY}","expires_in":"86400"}}',
    f"GET https://blob.example/agent.tar.gz?sv=1&sig={CANARY}",
    f"PUT https://user:{CANARY}@host.example/",
    f"exec /opt/agent --client-secret {CANARY} --verbose",
)


def journalctl(tmp_path: Path, *lines: str | tuple[str, str]) -> Path:
    """A journal with these lines, each of run 1 or a named one; it notes what it was asked for."""
    said = [("1", line) if isinstance(line, str) else line for line in lines]
    entries = [{"_SYSTEMD_INVOCATION_ID": run, "MESSAGE": text} for run, text in reversed(said)]
    (tmp_path / "journal").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    program = tmp_path / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\nexec cat {tmp_path}/journal\n')
    program.chmod(0o755)
    return program


@dataclass(slots=True)
class Journal(PlayedProbe):
    """The played probe with a journal to read."""

    program: str = ""

    def journal(self, unit: str, lines: int, *, after: str, but: str) -> tuple[str, ...]:
        return SystemProbe(self.program).journal(unit, lines, after=after, but=but)


def judged_bad(world: World, program: Path) -> tuple[Host, HistoryLine]:
    probe = Journal(world.systemd, program=str(program))
    host = replace(world.host(), probe=probe)
    switch.upgrade(host, world.candidate("1.1.0", "crash"), Options())
    line = settle(host)
    assert line is not None
    return host, line


def test_evidence_is_kept_without_the_secrets_in_it(tmp_path: Path) -> None:
    world = installed(make_world(tmp_path / "host", SlotKind.BUNDLE))
    host, line = judged_bad(world, journalctl(tmp_path, "starting", *SECRETS, "panic: no luck"))
    assert (line.evidence[0], line.evidence[-1]) == ("starting", "panic: no luck")
    assert len(line.evidence) == len(SECRETS) + 2
    kept = [p for p in (tmp_path / "host/state").rglob("*") if p.is_file()]
    assert {p.name for p in kept} == {"history.jsonl", "state.json"}
    assert not [p for p in kept if CANARY in p.read_text()]
    assert not [p for p in kept if p.stat().st_mode & 0o077]
    status = gather(host)
    shown = [
        render.to_json(status), render.status_text(status), render.history_text(line),
        render.verdict_text(line), render.evidence_text(line.evidence),
        *(render.event_line(event) for event in world.events),
    ]  # fmt: skip
    assert CANARY not in "\n".join(shown)
    assert "panic: no luck" in "\n".join(shown)


def test_evidence_is_of_all_runs_on_trial_though_the_last_of_them_said_nothing(
    tmp_path: Path,
) -> None:
    journal = journalctl(
        tmp_path, ("old", "stopping"), ("1st", "no luck"), ("2nd", ""), ("back", "ready")
    )
    found = SystemProbe(str(journal)).journal("a.service", 7, after="old", but="back")
    assert found == ("no luck",)


def test_the_journal_is_asked_for_whole_entries_of_the_unit_newest_first(tmp_path: Path) -> None:
    program = journalctl(tmp_path, "a", "b\nc", "d")
    assert SystemProbe(str(program)).journal("a.service", 3, after="", but="") == ("b", "c", "d")
    asked = (tmp_path / "asked").read_text().split()
    assert {"--reverse", "--all", "--boot", "_SYSTEMD_UNIT=a.service"} <= set(asked)


def test_a_torn_or_odd_entry_of_the_journal_is_left_out(tmp_path: Path) -> None:
    program = journalctl(tmp_path, "a", "b")
    with (tmp_path / "journal").open("a") as journal:
        journal.write('[]\n{"MESSAGE":[104,105]}\n{"MESSAGE":"to')
    found = SystemProbe(str(program)).journal("a.service", 9, after="", but="")
    assert found == ("hi", "a", "b")


def test_evidence_is_bounded_plain_text_however_long_and_hostile_the_lines(tmp_path: Path) -> None:
    lines = ["\x1b[2J" + " no luck" * 5_000 for _ in range(EVIDENCE_LINES - 1)]
    program = str(journalctl(tmp_path, *lines, "last words"))
    found = SystemProbe(program).journal("a.service", EVIDENCE_LINES, after="", but="")
    assert len(found) == EVIDENCE_LINES
    assert found[-1] == "last words"
    assert all(len(line) <= JOURNAL_LINE for line in found)
    assert found[0].startswith(r"\x1b[2J no luck no")
    assert len(json.dumps(found)) < 16 << 10


@pytest.mark.parametrize("program", ["/nonexistent/journalctl", "/bin/false"])
def test_without_a_journal_there_is_no_evidence_and_no_error(program: str) -> None:
    assert SystemProbe(program).journal("a.service", 20, after="", but="") == ()


@pytest.mark.parametrize("secret", SECRETS)
def test_what_a_candidate_says_when_it_fails_is_told_without_secrets(
    tmp_path: Path, secret: str
) -> None:
    world = installed(make_world(tmp_path, SlotKind.FILE))
    telling = f"#!/bin/sh\ncat >&2 <<'END'\n{secret} is wrong\nEND\nexit 3\n"
    with pytest.raises(Refused, match="status 3") as refused:
        switch.upgrade(world.host(), world.candidate("1.1.0", entry=telling), Options())
    assert CANARY not in str(refused.value)
    (line,) = world.host().state.history()
    assert "status 3" in line.reason
    assert CANARY not in line.reason


def test_the_environment_of_the_caller_is_not_passed_to_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", CANARY)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{CANARY}@proxy.example")
    world = installed(make_world(tmp_path, SlotKind.FILE))
    noting = f'#!/bin/sh\n# behaviour=good\nenv >{tmp_path}/env\necho "agent 1.1.0"\n'
    switch.upgrade(world.host(), world.candidate("1.1.0", entry=noting), Options())
    assert "LANG=C" in (tmp_path / "env").read_text() or "MACHINE" in (tmp_path / "env").read_text()
    assert CANARY not in (tmp_path / "env").read_text()
    record = world.host().record
    assert record.load() is not None
    assert CANARY not in record.path.read_text()
