from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from nspawn.errors import CommandTimeout, MachineUnreachable, NoSuchMachine, OutputLimit
from nspawn.run import Tools, run
from tests.processes import LONG, ended

BRIEF = 2.0
"""A time limit to run into. What the command does before it hangs takes milliseconds."""

SYSTEMD_RUN = """#!/bin/sh
# Runs the command here. As the machine's service manager would, it takes a doubled dollar for one.
printf '%s\\n' "$@" > {record}/arguments
env > {record}/environment
while [ "$1" != -- ]; do shift; done
shift
for argument do
    set -- "$@" "$(printf %s "$argument" | sed 's/\\$\\$/$/g')"
    shift
done
exec "$@"
"""

SYSTEMCTL = """#!/bin/sh
printf '%s\\n' "$@" > {record}/stopped
"""


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    for name, text in {"systemd-run": SYSTEMD_RUN, "systemctl": SYSTEMCTL}.items():
        (tmp_path / name).write_text(text.format(record=tmp_path))
        (tmp_path / name).chmod(0o755)
    machines = tmp_path / "machines"
    machines.mkdir()
    (machines / "kube1").touch()
    return Tools(
        systemd_run=tmp_path / "systemd-run", systemctl=tmp_path / "systemctl", machines=machines
    )


def test_status_and_both_streams_come_back_apart(tools: Tools) -> None:
    done = run(
        "kube1", ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], timeout=LONG, tools=tools
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert 0 < done.duration < LONG


def test_a_dollar_in_an_argument_is_not_expanded_on_the_way(tools: Tools, tmp_path: Path) -> None:
    text = "$HOME ${HOME} $$ %n"
    done = run("kube1", ["/bin/echo", text], timeout=LONG, tools=tools)
    assert done.stdout.decode() == f"{text}\n"
    sent = (tmp_path / "arguments").read_text().splitlines()[-1]
    assert sent == "$$HOME $${HOME} $$$$ %n"


def test_the_command_gets_no_input_and_a_clean_environment(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "from the caller")
    done = run("kube1", ["/bin/cat"], timeout=LONG, env={"GIVEN": "value"}, tools=tools)
    assert done.stdout == b""
    environment = (tmp_path / "environment").read_text()
    assert "GIVEN=value" in environment
    assert "LANG=C" in environment
    assert "LEAKED" not in environment


def test_values_of_the_environment_are_not_in_the_argument_list(
    tools: Tools, tmp_path: Path
) -> None:
    run("kube1", ["/bin/true"], timeout=2.5, env={"TOKEN": "hidden"}, tools=tools)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert "--setenv=TOKEN" in arguments
    assert not any("hidden" in argument for argument in arguments)
    assert {"--machine=kube1", "--pipe", "--wait", "--collect"} <= set(arguments)
    assert "--property=RuntimeMaxSec=4" in arguments
    assert arguments[-2:] == ["--", "/bin/true"]


def test_a_command_that_hangs_is_killed_and_its_unit_stopped(tools: Tools, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    with pytest.raises(CommandTimeout, match=r"/bin/sh.*kube1"):
        run("kube1", ["/bin/sh", "-c", script], timeout=BRIEF, tools=tools)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    unit = next(
        line.removeprefix("--unit=")
        for line in (tmp_path / "arguments").read_text().splitlines()
        if line.startswith("--unit=")
    )
    stop = (tmp_path / "stopped").read_text().splitlines()
    assert stop == ["--machine=kube1", "stop", unit]


def test_what_the_command_started_here_is_killed_with_it(tools: Tools, tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(CommandTimeout):
        run("kube1", ["/bin/sh", "-c", script], timeout=BRIEF, tools=tools)
    assert ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stream", ["1", "2"])
def test_endless_output_is_cut_off(tools: Tools, tmp_path: Path, stream: str) -> None:
    script = f"while :; do echo y; done >&{stream}"
    with pytest.raises(OutputLimit, match="1000 bytes"):
        run("kube1", ["/bin/sh", "-c", script], timeout=LONG, output_limit=1000, tools=tools)
    assert (tmp_path / "stopped").exists()


def test_output_up_to_the_limit_is_whole(tools: Tools) -> None:
    script = "head -c 200000 /dev/zero"
    done = run("kube1", ["/bin/sh", "-c", script], timeout=LONG, output_limit=200_000, tools=tools)
    assert done.stdout == bytes(200_000)


def test_who_keeps_the_output_open_after_the_end_is_not_awaited(
    tools: Tools, tmp_path: Path
) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; echo done"
    done = run("kube1", ["/bin/sh", "-c", script], timeout=LONG, tools=tools)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert done.stdout == b"done\n"
    assert done.duration < LONG


def test_a_machine_that_is_not_there_is_told_without_running_anything(
    tools: Tools, tmp_path: Path
) -> None:
    with pytest.raises(NoSuchMachine, match="kube2"):
        run("kube2", ["/bin/true"], timeout=LONG, tools=tools)
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize("name", ["root@kube1", ".host", "../kube1", ""])
def test_a_name_that_means_something_else_to_systemd_is_refused(tools: Tools, name: str) -> None:
    with pytest.raises(NoSuchMachine):
        run(name, ["/bin/true"], timeout=LONG, tools=tools)


def test_a_machine_that_ends_meanwhile_is_told_from_a_failed_command(tools: Tools) -> None:
    script = f"rm {tools.machines}/kube1; exit 1"
    with pytest.raises(NoSuchMachine):
        run("kube1", ["/bin/sh", "-c", script], timeout=LONG, tools=tools)


def test_a_machine_that_takes_no_command_is_told_from_a_failed_command(tools: Tools) -> None:
    script = "echo 'Failed to connect to bus: Connection refused' >&2; exit 1"
    with pytest.raises(MachineUnreachable, match="Connection refused"):
        run("kube1", ["/bin/sh", "-c", script], timeout=LONG, tools=tools)


def test_missing_programs_are_named(tools: Tools, tmp_path: Path) -> None:
    with pytest.raises(MachineUnreachable, match="missing"):
        run(
            "kube1",
            ["/bin/true"],
            timeout=LONG,
            tools=replace(tools, systemd_run=tmp_path / "missing"),
        )
