"""`[operations]`: who a host is to its cluster, and what cannot be meant."""

from pathlib import Path

import pytest

from hostsync.config import Config, load
from hostsync.errors import ConfigError
from hostsync.membership import KUBECONFIG, Membership


def loaded(tmp_path: Path, table: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(table)
    return load(path)


def test_without_the_table_a_host_asks_no_cluster(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").membership is None


def test_a_machine_alone_is_enough(tmp_path: Path) -> None:
    me = loaded(tmp_path, '[operations]\nmachine = "host-1"\n').membership
    assert me == Membership(machine="host-1", node="host-1", kubeconfig=KUBECONFIG)


def test_each_key_is_heard(tmp_path: Path) -> None:
    keys = ('machine = "a"', 'node = "b"', 'agent = "aks-flex-node"', "selectors = false")
    agents = "[agents.hostsync]\n[agents.aks-flex-node]\n"
    text = "\n".join([agents, "[operations]", *keys, "in_cluster = true"])
    assert loaded(tmp_path, text).membership == Membership(
        machine="a", node="b", agent="aks-flex-node", kubeconfig=None, selectors=False
    )


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("", "machine"),
        ('machine = ""', "operations.machine"),
        ('machine = "Host 1"', "operations.machine"),
        ('machine = "a"\nnode = "../b"', "operations.node"),
        ('machine = "a"\nkubeconfig = "k"', "operations.kubeconfig"),
        ('machine = "a"\nkubeconfig = "/k"\nin_cluster = true', "operations.in_cluster"),
        ('machine = "a"\nagent = "somebody"', "operations.agent"),
        ('machine = "a"\nselector = true', "selector"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_key(tmp_path: Path, lines: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        loaded(tmp_path, f"[operations]\n{lines}\n")
