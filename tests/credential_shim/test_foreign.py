"""The gate before somebody else's plugin."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from credential_shim.errors import UsageError
from credential_shim.foreign import release_of, split
from credential_shim.gate import POLL_SECONDS, WAIT_SECONDS
from tests.credential_shim.slot_root import Run, SlotRoot, run, seal_bytes
from tests.credential_shim.test_process import assert_refused

pytestmark = pytest.mark.slow

PROGRAM = '#!/bin/sh\nprintf "%s\\n" "{version}" "$@"\ncat\nexport -p\n'


@dataclass(frozen=True, slots=True)
class Agent:
    """A foreign agent of single files, as hostsync adopts it."""

    root: Path

    def install(self, slot: str, seal: bytes, version: str) -> None:
        content = self.root / f"agent-{slot}"
        content.write_text(PROGRAM.format(version=version))
        content.chmod(0o755)
        (self.root / f"agent-{slot}.RELEASE").write_bytes(seal)

    def point(self, slot: str) -> None:
        link = self.root / "agent-current"
        link.unlink(missing_ok=True)
        link.symlink_to(f"agent-{slot}")
        SlotRoot.backdate(link, 3600)

    def want(self, seal: bytes) -> None:
        (self.root / "WANTED").write_bytes(seal)
        SlotRoot.backdate(self.root / "WANTED", 3600)

    @property
    def program(self) -> str:
        """The compatibility path, as kubeconfigs name it."""
        return str(self.root.parent / "bin" / "agent")


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    agent = Agent(tmp_path / "agent")
    agent.root.mkdir()
    (tmp_path / "bin").mkdir()
    Path(agent.program).symlink_to("../agent/agent-current")
    agent.install("blue", seal_bytes("1.0.0"), "one")
    agent.install("green", seal_bytes("2.0.0", "b"), "two")
    agent.point("blue")
    return agent


def through(root: SlotRoot, *words: str, environ: dict[str, str] | None = None) -> Run:
    return root.run("exec", *words, environ=environ)


def test_the_program_runs_with_its_arguments_environment_and_stdin(
    root: SlotRoot, agent: Agent
) -> None:
    words = [root.shim(), "exec", "--", agent.program, "token", "--help", "--server-id", "x"]
    result = run(["/bin/sh", "-c", 'echo in | "$0" "$@"', *words], {"AZURE_CLIENT_SECRET": "s"})
    lines = result.out.decode().splitlines()
    assert lines[:6] == ["one", "token", "--help", "--server-id", "x", "in"]
    assert any("AZURE_CLIENT_SECRET" in line and "'s'" in line for line in lines)
    assert result.err == ""


def test_its_exit_code_is_ours(root: SlotRoot, agent: Agent) -> None:
    (agent.root / "agent-blue").write_text("#!/bin/sh\nexit 42\n")
    assert through(root, "--", agent.program).code == 42


def test_a_mirror_behind_its_host_is_refused_naming_both_versions(
    root: SlotRoot, agent: Agent
) -> None:
    agent.want(seal_bytes("2.0.0", "b"))
    start = time.monotonic()
    line = assert_refused(through(root, "--", agent.program), 3)
    assert time.monotonic() - start > WAIT_SECONDS - POLL_SECONDS
    assert "1.0.0" in line
    assert "2.0.0" in line
    served = through(root, "--on-skew", "serve", "--", agent.program)
    assert served.out.startswith(b"one\n")
    assert "--on-skew=serve" in served.err


def test_a_slot_that_is_not_selected_or_not_sealed_is_refused(root: SlotRoot, agent: Agent) -> None:
    assert_refused(through(root, "--", str(agent.root / "agent-green")), 3)
    (agent.root / "agent-blue.RELEASE").unlink()
    assert "is missing" in assert_refused(through(root, "--", agent.program), 3)


def test_a_file_beneath_a_slot_is_judged_by_the_slots_seal(root: SlotRoot) -> None:
    other = root.install("green", seal_bytes("2.0.0"))
    tool = other / "bin" / "tool"
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    assert_refused(through(root, "--", str(tool)), 3)
    root.point("green")
    assert through(root, "--", str(root.path / "current" / "bin" / "tool")).out == b"tool\n"


def test_a_program_that_is_none_is_a_usage_error(root: SlotRoot, agent: Agent) -> None:
    assert "slot" in assert_refused(through(root, "--", "/bin/true"), 2)
    (agent.root / "agent-blue").chmod(0o644)
    assert "Permission denied" in assert_refused(through(root, "--", agent.program), 2)


@pytest.mark.parametrize(
    "words",
    [[], ["--"], ["/bin/true"], ["--", "true"], ["--no-gate", "--", "/x"],
     ["--server-id", "s", "--", "/x"], ["--on-skew", "--", "/x"]],
)  # fmt: skip
def test_other_command_lines_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        split(words)


def test_a_path_outside_any_slot_has_no_release() -> None:
    with pytest.raises(UsageError, match="/usr/bin/env"):
        release_of("/usr/bin/env", "/usr/bin/env")
