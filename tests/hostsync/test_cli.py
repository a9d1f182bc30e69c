"""The command line: what it prints, which status it ends with, and that it changes no more."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostsync import lock
from hostsync._version import PROTOCOL, VERSION
from hostsync.state import Outcome
from tests.hostsync.command import CommandLine, command_line
from tests.hostsync.release.minisign import Signer
from tests.hostsync.world import snapshot
from tests.hostsync.zygote import Zygote

pytestmark = [pytest.mark.slow, pytest.mark.root]

CHANGING = (
    ("install",), ("upgrade", "/x"), ("rollback",), ("recover",), ("sync",), ("judge",),
    ("daemon",),
)  # fmt: skip


@pytest.fixture
def host(tmp_path: Path, zygote: Zygote) -> Iterator[CommandLine]:
    with command_line(tmp_path, zygote) as line:
        yield line


@pytest.fixture
def alone(tmp_path: Path, zygote: Zygote) -> CommandLine:
    """A host without a bus."""
    return CommandLine(tmp_path / "host", f"unix:path={tmp_path}/no-bus", zygote=zygote)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_tells_every_command_and_every_exit_status(alone: CommandLine, word: str) -> None:
    ran = alone.run(word)
    assert ran.status == 0
    for command in ("install", "upgrade", "rollback", "recover", "sync", "status", "history"):
        assert f"\n  {command} " in ran.out
    assert "\n  judge " not in ran.out
    assert "5 failed and rolled back" in " ".join(ran.out.split())
    assert alone.run("upgrade", word).out.startswith("Usage: hostsync upgrade [OPTIONS] PATH")


def test_version_is_told_to_people_and_to_machines(alone: CommandLine) -> None:
    assert alone.run("version").out == f"hostsync {VERSION} (protocol {PROTOCOL})\n"
    assert alone.run("--version").out == f"hostsync {VERSION}\n"
    told = alone.run("--output", "json", "version")
    assert told.values == [{"version": VERSION, "protocol": PROTOCOL}]


@pytest.mark.parametrize(
    "words",
    [("nonsense",), ("upgrade",), ("upgrade", "/x", "--force"), ("--output", "xml", "status")],
)
def test_a_wrong_command_line_is_a_usage_error(alone: CommandLine, words: tuple[str, ...]) -> None:
    ran = alone.run(*words)
    assert ran.status == 2
    assert ran.out == ""
    assert "Usage: hostsync" in ran.err


def test_a_wrong_command_line_is_told_as_json_on_request(alone: CommandLine) -> None:
    ran = alone.run("--output", "json", "upgrade")
    assert (ran.status, ran.error["exit"], ran.error["code"]) == (2, 2, "configuration")


def test_a_broken_configuration_is_told_by_its_key(alone: CommandLine) -> None:
    path = alone.top / "config.toml"
    path.write_text("[agents.hostsync]\nwindow_second = 1\n")
    for words in (("install",), ("status",), ("history",)):
        ran = alone.run("--output=json", *words)
        assert ran.status == 2
        assert ran.error["code"] == "configuration"
        assert "window_second" in ran.err
        assert str(path) in ran.err


def test_an_agent_that_is_not_configured_is_a_configuration_error(alone: CommandLine) -> None:
    ran = alone.run("--agent", "other", "status")
    assert ran.status == 2
    assert "known: aks-flex-node" in ran.err


@pytest.mark.parametrize("words", CHANGING, ids=lambda words: words[0])
def test_whoever_is_not_root_is_refused_and_nothing_is_made(
    alone: CommandLine, words: tuple[str, ...]
) -> None:
    before = snapshot(alone.top)
    ran = alone.run("--output", "json", *words, prefix=("unshare", "--user"))
    assert ran.status == 3
    assert ran.error["reason"] == "not-root"
    assert ran.err == "hostsync: this changes the host; run it as root\n"
    assert snapshot(alone.top) == before


def test_status_of_an_empty_host_tells_so_and_makes_nothing(host: CommandLine) -> None:
    before = snapshot(host.top)
    ran = host.run("status")
    assert ran.status == 1
    assert "problem: aks-flex-node is not installed" in ran.out
    assert ran.err == ""
    assert snapshot(host.top) == before
    assert host.run("history").out == ""


def test_status_without_a_bus_is_told_and_no_crash(alone: CommandLine) -> None:
    ran = alone.run("--output", "json", "status")
    assert ran.status == 1
    (value,) = ran.values
    assert "cannot reach systemd" in json.dumps(value)


def test_an_install_is_repeatable_and_refuses_another_release(host: CommandLine) -> None:
    nothing = host.run("--output", "json", "install")
    assert (nothing.status, nothing.error["reason"]) == (3, "bad-candidate")
    first = host.run("install", str(host.program("1.0.0")))
    assert first.status == 0
    assert "installed aks-flex-node 1.0.0 in slot blue" in first.out
    assert (host.top / "bin/aks-flex-node").resolve().name == "aks-flex-node-blue"
    before = snapshot(host.top / "lib")
    assert host.run("install", str(host.program("1.0.0"))).status == 0
    other = host.run("--output", "json", "install", str(host.program("1.1.0")))
    assert (other.status, other.error["reason"]) == (3, "not-ours")
    assert snapshot(host.top / "lib") == before
    assert host.run("status").status == 0


def test_an_install_holds_its_path_to_a_digest_as_an_upgrade_does(host: CommandLine) -> None:
    program = host.program("1.0.0")
    before = snapshot(host.top)
    other = host.run("--output", "json", "install", str(program), "--sha256", "0" * 64)
    assert (other.status, other.error["reason"]) == (3, "bad-candidate")
    assert host.run("install", str(program), "--sha256", "no digest").status == 2
    assert host.run("install", "--sha256", "0" * 64).status == 2
    after = {p: v for p, v in snapshot(host.top).items() if not p.startswith("run")}
    assert after == before
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert host.run("install", str(program), "--sha256", digest).status == 0


def test_an_install_asks_for_a_signature_where_an_upgrade_does(host: CommandLine) -> None:
    signer, program = Signer(), host.program("1.0.0")
    with (host.top / "config.toml").open("a") as config:
        config.write(f'[release]\ntrusted_keys = ["{signer.public}"]\n')
    unsigned = host.run("--output", "json", "install", str(program))
    assert (unsigned.status, unsigned.error["reason"]) == (3, "untrusted-source")
    named = host.top / "named.minisig"
    named.write_bytes(signer.sign(b"other bytes"))
    wrong = host.run("--output", "json", "install", str(program), "--signature", str(named))
    assert (wrong.status, wrong.error["reason"]) == (3, "untrusted-source")
    assert not (host.top / "lib").exists()
    named.write_bytes(signer.sign(program.read_bytes()))
    assert host.run("install", str(program), "--signature", str(named)).status == 0


def test_what_the_host_has_is_adopted_whatever_keys_are_trusted(host: CommandLine) -> None:
    """It runs already: refusing it would protect nobody, and leave it without a fallback."""
    with (host.top / "config.toml").open("a") as config:
        config.write(f'[release]\ntrusted_keys = ["{Signer().public}"]\n')
    program = host.top / "bin/aks-flex-node"
    program.parent.mkdir()
    program.write_bytes(host.program("0.9.0").read_bytes())
    program.chmod(0o755)
    ran = host.run("install")
    assert (ran.status, "adopted aks-flex-node 0.9.0" in ran.out) == (0, True)


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        (Outcome.COMPLETE, 0, "1.1.0 is current, judged good"),
        (Outcome.ROLLED_BACK, 5, "judged bad: it crashed; 1.0.0 runs again"),
        (Outcome.NOT_RESTORED, 6, "NOT restored: it crashed"),
        (Outcome.INTERRUPTED, 1, "ended interrupted: it crashed"),
    ],
)
def test_an_upgrade_ends_with_the_status_of_its_verdict(
    host: CommandLine, outcome: Outcome, status: int, said: str
) -> None:
    host.installed().decide(outcome, "it crashed")
    ran = host.run("upgrade", str(host.program("1.1.0")))
    assert ran.status == status
    assert said in ran.out.splitlines()[-1]
    history = host.run("--output", "json", "history")
    assert [value["order"]["outcome"] for value in history.values] == [str(outcome)]  # type: ignore[index]


def test_the_release_in_use_is_nothing_to_do(host: CommandLine) -> None:
    ran = host.installed().run("--output", "json", "upgrade", str(host.program("1.0.0")))
    assert ran.status == 0
    assert ran.values == [{"nothing_to_do": "aks-flex-node 1.0.0 is current already"}]


def test_an_order_in_flight_is_status_7_and_makes_every_other_order_busy(host: CommandLine) -> None:
    host.installed()
    assert host.run("upgrade", str(host.program("1.1.0")), "--no-wait").status == 0
    assert host.run("status").status == 7
    for words in (("upgrade", str(host.program("1.2.0"))), ("rollback",), ("sync",), ("recover",)):
        ran = host.run("--output", "json", *words)
        assert (ran.status, ran.error["code"]) == (4, "busy")
        assert "(aks-flex-node 1.1.0) is in flight, switched" in ran.err


def test_a_taken_lock_is_busy_and_names_its_holder(host: CommandLine) -> None:
    host.installed()
    with lock.held(host.top / "run", "hostsync sync"):
        ran = host.run("upgrade", str(host.program("1.1.0")))
    assert ran.status == 4
    assert "busy: hostsync sync (pid " in ran.err


def test_preflight_prints_the_plan_and_changes_nothing(host: CommandLine) -> None:
    host.installed()
    candidate = str(host.program("1.1.0"))
    before = snapshot(host.top)
    text = host.run("upgrade", candidate, "--preflight")
    assert text.status == 0
    assert "every check passed; an upgrade would do this:" in text.out
    told = host.run("--output", "json", "upgrade", candidate, "--preflight")
    (plan,) = [value["plan"] for value in told.values if "plan" in value]
    assert isinstance(plan, dict)
    assert plan["target"] == "green"
    after = snapshot(host.top)
    assert {p: v for p, v in after.items() if p != "run/lock"} == {
        p: v for p, v in before.items() if p != "run/lock"
    }


def test_a_refusal_has_its_reason_and_changes_nothing(host: CommandLine) -> None:
    host.installed()
    before = snapshot(host.top / "lib")
    broken = host.program("1.1.0", "#!/bin/sh\necho no luck >&2\nexit 3\n")
    ran = host.run("--output", "json", "upgrade", str(broken))
    assert (ran.status, ran.error["reason"]) == (3, "candidate-fails")
    assert "no luck" in ran.err
    assert snapshot(host.top / "lib") == before


def test_a_judge_that_does_not_start_fails_the_order_and_takes_it_back(host: CommandLine) -> None:
    host.installed()
    before = snapshot(host.top / "lib")
    assert host.systemd is not None
    host.systemd.served.result = "failed"
    ran = host.run("--output", "json", "upgrade", str(host.program("1.1.0")))
    assert (ran.status, ran.error["code"]) == (1, "failed")
    assert snapshot(host.top / "lib") == before


def test_without_machined_an_order_fails_and_changes_nothing(alone: CommandLine) -> None:
    ran = alone.run("--output", "json", "sync")
    assert (ran.status, ran.error["code"]) == (1, "machine")


def test_an_unreadable_record_stops_every_order_until_it_is_set_aside(host: CommandLine) -> None:
    host.installed()
    host.record.path.parent.mkdir(parents=True, exist_ok=True)
    host.record.path.write_bytes(b"{}")
    for words in (("upgrade", str(host.program("1.1.0"))), ("recover",), ("sync",)):
        ran = host.run("--output", "json", *words)
        assert (ran.status, ran.error["reason"]) == (3, "record-unreadable")
    assert host.run("status").status == 1
    assert host.run("recover", "--set-record-aside").status == 0
    assert host.run("status").status == 0
    (kept,) = host.record.path.parent.glob("record.unreadable-*.json")
    assert kept.read_bytes() == b"{}"


def test_a_machine_that_is_no_worker_is_not_prepared(host: CommandLine) -> None:
    before = snapshot(host.installed().top)
    assert host.run("sync", "--before-boot", "other").status == 0
    assert snapshot(host.top) == before


@pytest.mark.parametrize("name", ["kube1/../../outside", "kube1\n", "kube", "kube*"])
def test_a_machine_whose_name_is_a_path_is_refused(host: CommandLine, name: str) -> None:
    (host.installed().top / "outside").mkdir()
    ran = host.run("sync", "--before-boot", name)
    assert ran.status == 1
    assert list((host.top / "outside").iterdir()) == []
