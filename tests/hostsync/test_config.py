"""The configuration: every key has its effect, and nothing that cannot be meant is accepted."""

from pathlib import Path

import pytest

from hostsync.config import AKS_SERVER_ID, Config, Readiness, load
from hostsync.errors import ConfigError, ExitCode
from hostsync.model import SlotKind, SlotName

BOTH = "[agents.hostsync]\n[agents.aks-flex-node]\n"


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert refused.value.exit_code is ExitCode.USAGE
    assert str(tmp_path / "config.toml") in refused.value.brief
    return str(refused.value)


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path / "config.toml")
    agent = config.agent(None)
    assert list(config.agents) == ["hostsync"]
    assert (agent.name, agent.unit) == ("hostsync", "hostsync.service")
    assert agent.layout.kind is SlotKind.BUNDLE
    assert agent.layout.current == Path("/usr/local/lib/hostsync/current")
    assert [str(c.path) for c in agent.commands] == [
        "/usr/local/bin/hostsync", "/usr/local/bin/hostsync-credential",
    ]  # fmt: skip
    assert [c.in_machine for c in agent.commands] == [False, True]
    assert agent.self_test[0] == "bin/hostsync-credential"
    assert agent.self_test[-1] == AKS_SERVER_ID
    assert agent.owns_assets
    assert config.state_root == Path("/var/lib/hostsync")
    assert config.run_root == Path("/run/hostsync")
    assert config.unit_root == Path("/etc/systemd/system")
    assert config.reserve_bytes == 64 << 20
    assert config.machines.root == Path("/var/lib/machines")
    assert config.machines.check_seconds == 60


@pytest.mark.parametrize("text", ["", "# nothing\n", "[agents]\n", "[machines]\n"])
def test_a_file_that_says_nothing_means_the_defaults_too(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == load(tmp_path / "missing.toml")


def test_the_flex_profile_is_a_single_file_judged_by_its_stability(tmp_path: Path) -> None:
    agent = read(tmp_path, "[agents.aks-flex-node]\n").agent(None)
    assert agent.layout.kind is SlotKind.FILE
    assert agent.layout.slot(SlotName.GREEN).name == "aks-flex-node-green"
    assert agent.layout.last_good.name == "aks-flex-node-last-good"
    assert agent.unit == "aks-flex-node-agent.service"
    assert agent.health.readiness is Readiness.STABLE
    assert agent.self_test == ()
    assert not agent.owns_assets


def test_every_key_of_an_agent_has_its_effect(tmp_path: Path) -> None:
    text = """
        [agents.hostsync]
        slot_root = "/opt/hostsync"
        bin_root = "/opt/bin"
        unit = "other@1.service"
        readiness = "stable"
        start_seconds = 1
        window_seconds = 2.5
        stable_seconds = 3600
        stop_seconds = 0
        self_test = ["bin/hostsync-credential", "check"]
    """
    agent = read(tmp_path, text).agent("hostsync")
    assert agent.layout.root == Path("/opt/hostsync")
    assert agent.commands[0].path == Path("/opt/bin/hostsync")
    assert agent.unit == "other@1.service"
    health = agent.health
    assert health.readiness is Readiness.STABLE
    assert (health.start_seconds, health.window_seconds) == (1, 2.5)
    assert (health.stable_seconds, health.stop_seconds) == (3600, 0)
    assert agent.self_test == ("bin/hostsync-credential", "check")


def test_every_key_of_the_host_has_its_effect(tmp_path: Path) -> None:
    text = """
        state_root = "/srv/state"
        run_root = "/run/other"
        unit_root = "/run/systemd/system"
        reserve_mib = 0
        [machines]
        include = ["worker-?", "node1"]
        mirror_only = ["worker-9"]
        root = "/srv/machines"
        check_seconds = 5
    """
    config = read(tmp_path, text)
    assert config.state_root == Path("/srv/state")
    assert config.run_root == Path("/run/other")
    assert config.unit_root == Path("/run/systemd/system")
    assert config.reserve_bytes == 0
    machines = config.machines
    assert machines.mirror_only == ("worker-9",)
    assert machines.root == Path("/srv/machines")
    assert machines.check_seconds == 5
    names = ("worker-1", "node1", "worker-10", "kube1", "Node1")
    assert [machines.is_worker(name) for name in names] == [True, True, False, False, False]


def test_an_empty_list_of_machines_is_a_wish_and_not_the_default(tmp_path: Path) -> None:
    assert not read(tmp_path, "[machines]\ninclude = []\n").machines.is_worker("kube1")


def test_an_empty_self_test_turns_it_off(tmp_path: Path) -> None:
    assert read(tmp_path, "[agents.hostsync]\nself_test = []\n").agent(None).self_test == ()


def test_with_two_agents_the_own_one_is_meant_unless_said_otherwise(tmp_path: Path) -> None:
    config = read(tmp_path, BOTH)
    assert config.agent(None).name == "hostsync"
    assert config.agent("aks-flex-node").layout.root == Path("/usr/local/lib/aks-flex-node")


def test_the_only_agent_is_meant_without_a_name(tmp_path: Path) -> None:
    assert read(tmp_path, "[agents.aks-flex-node]\n").agent(None).name == "aks-flex-node"


def test_an_agent_that_is_not_configured_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no agent 'x'.*aks-flex-node, hostsync"):
        read(tmp_path, BOTH).agent("x")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nonsense = 1", "nonsense"),
        ("[agents.hostsync]\nwindow_second = 1", "window_second"),
        ("[machines]\nincludes = []", "includes"),
        ("[agents.other]\n", "agents.other"),
        ("[agents.hostsync]\nwindow_seconds = '30'", "window_seconds"),
        ("[agents.hostsync]\nwindow_seconds = true", "window_seconds"),
        ("[agents.hostsync]\nwindow_seconds = -1", "window_seconds"),
        ("[agents.hostsync]\nwindow_seconds = 3601", "window_seconds"),
        ("[agents.hostsync]\nwindow_seconds = nan", "window_seconds"),
        ("[agents.hostsync]\nstable_seconds = inf", "stable_seconds"),
        ("[agents.hostsync]\nstop_seconds = -0.1", "stop_seconds"),
        ("[agents.hostsync]\nstart_seconds = 0", "start_seconds"),
        ("[agents.hostsync]\nreadiness = 'sometimes'", "readiness"),
        ("[agents.hostsync]\nself_test = 'check'", "self_test"),
        ("[agents.hostsync]\nunit = 'hostsync'", "unit"),
        ("[agents.hostsync]\nunit = ''", "unit"),
        ("[agents.hostsync]\nunit = 'a b.service'", "unit"),
        ("[machines]\ncheck_seconds = 0", "check_seconds"),
        ("[machines]\ncheck_seconds = nan", "check_seconds"),
        ("[machines]\nroot = 7", "root"),
        ("reserve_mib = -1", "reserve_mib"),
        ("reserve_mib = 1.5", "reserve_mib"),
        ("reserve_mib = 99999999999", "reserve_mib"),
        ("state_root = []", "state_root"),
        ("agents = 1", "agents"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_its_key(
    tmp_path: Path, text: str, named: str
) -> None:
    assert named in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "key", ["state_root", "run_root", "unit_root", "slot_root", "bin_root", "root"]
)
@pytest.mark.parametrize(
    "value",
    ["", "relative/path", "/a/../etc", "/", "/with space", "/a%i", "/a\\nb", "/a\\u0000", "/a:b"],
)
def test_a_path_that_would_mean_something_else_in_a_unit_file_is_refused(
    tmp_path: Path, key: str, value: str
) -> None:
    table = {
        "slot_root": "[agents.hostsync]",
        "bin_root": "[agents.hostsync]",
        "root": "[machines]",
    }
    assert key in refusal(tmp_path, f'{table.get(key, "")}\n{key} = "{value}"\n')


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("hostsync", '["/bin/sh", "-c", "true"]'),
        ("hostsync", '["../../bin/sh"]'),
        ("hostsync", '[""]'),
        ("aks-flex-node", '["token"]'),
    ],
)
def test_a_self_test_runs_a_program_of_the_release_and_no_other(
    tmp_path: Path, agent: str, words: str
) -> None:
    text = f"[agents.{agent}]\nself_test = {words}\n"
    assert f"agents.{agent}.self_test" in refusal(tmp_path, text)


def test_a_single_file_agent_is_its_own_self_test(tmp_path: Path) -> None:
    config = read(tmp_path, '[agents.aks-flex-node]\nself_test = ["", "token", "check"]\n')
    assert config.agent(None).self_test == ("", "token", "check")


@pytest.mark.parametrize("inner", ["", "/inside"])
def test_two_agents_in_one_slot_root_are_refused(tmp_path: Path, inner: str) -> None:
    text = f"""
        [agents.hostsync]
        slot_root = "/opt/agents"
        [agents.aks-flex-node]
        slot_root = "/opt/agents{inner}"
    """
    assert "must be apart" in refusal(tmp_path, text)


def test_two_agents_on_one_unit_are_refused(tmp_path: Path) -> None:
    assert "are both" in refusal(tmp_path, BOTH + 'unit = "hostsync.service"\n')


@pytest.mark.parametrize("content", [b"[agents", b"\xff\xfe", b"a = 1\na = 2\n", b"\0"])
def test_a_file_that_is_no_toml_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=str(path)):
        load(path)


def test_a_file_that_cannot_be_read_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}: Is a directory"):
        load(tmp_path)
