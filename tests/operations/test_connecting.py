"""Who we are to the API: token, certificate, pod, plugin; and kubeconfigs that cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.world.cluster import Cluster as Stub
from e2e.world.pki import make_authority
from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.kubernetes import KubernetesCluster
from tests.operations.conftest import Connect

TOKEN = "token-of-hostsync"
Change = Callable[[dict[str, Any]], None]


def users(stub: Stub) -> list[str]:
    return [each.user for each in stub.requests()]


def changed(stub: Stub, change: Change) -> Path:
    """A kubeconfig of its own, made from the stub's."""
    document = json.loads(stub.kubeconfig.read_text())
    change(document)
    path = stub.kubeconfig.with_name("changed")
    path.write_text(json.dumps(document))
    return path


def as_user(user: dict[str, object]) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["users"][0]["user"] = user

    return change


def refused(kube: KubernetesCluster) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        kube.list("")
    assert TOKEN not in str(caught.value)
    assert caught.value.remedy or caught.value.cause is ClusterCause.UNREACHABLE
    return caught.value


def test_a_token_and_a_certificate_make_us_who_they_say(stub: Stub, connect: Connect) -> None:
    connect(stub.kubeconfig).list("")
    connect(stub.certificate_kubeconfig("host-7")).list("")
    assert users(stub) == ["hostsync", "host-7"]


def test_a_pod_is_who_its_token_says_also_after_that_was_rotated(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    account.mkdir()
    account.chmod(0o1777)  # as kubelet mounts it
    (account / "namespace").write_text("kube-system")
    (account / "ca.crt").write_bytes((tmp_path / "kube/ca.pem").read_bytes())
    (account / "token").write_text(TOKEN)
    host, _, port = stub.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    kube = KubernetesCluster(None, None, account)
    kube.list("")
    (account / "token").write_text("stale")
    kube.list("")
    stub.stop()
    stub.start()
    (account / "token").write_text("token-of-another")
    kube.close()
    kube.list("")
    assert users(stub) == ["hostsync", "hostsync", "another"]
    (account / "token").write_text("stale")
    kube.close()
    assert refused(kube).cause is ClusterCause.DENIED
    (account / "token").unlink()
    assert refused(kube).cause is ClusterCause.CREDENTIAL
    kube.close()


def test_a_pods_token_that_goes_while_it_is_used_is_a_credential_that_is_missing(
    stub: Stub, connect: Connect, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("stale")
    kube = connect(changed(stub, as_user({"tokenFile": str(token)})))
    assert refused(kube).cause is ClusterCause.DENIED
    token.unlink()
    assert refused(kube).cause is ClusterCause.CREDENTIAL
    token.write_text(TOKEN)
    kube.list("")


def test_a_kubeconfig_is_read_anew_after_its_credential_was_refused(
    stub: Stub, connect: Connect
) -> None:
    path = changed(stub, as_user({"token": "revoked"}))
    kube = connect(path)
    for _ in range(3):
        assert refused(kube).cause is ClusterCause.DENIED
    changed(stub, as_user({"token": TOKEN}))
    kube.list("")


def test_refused_credentials_leave_no_connection_behind(stub: Stub, connect: Connect) -> None:
    kube = connect(changed(stub, as_user({"token": "revoked"})))
    refused(kube)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        refused(kube)
    stub.settle()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_plugin_makes_us_who_its_token_says(stub: Stub, connect: Connect, tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}}
    plugin = tmp_path / "plugin"
    plugin.write_text(f'#!/bin/sh\n[ "$1 $MODE" = "token msi" ] && echo \'{json.dumps(answer)}\'\n')
    plugin.chmod(0o755)
    stanza: dict[str, object] = {
        "apiVersion": version, "command": str(plugin), "args": ["token"],
        "env": [{"name": "MODE", "value": "msi"}], "interactiveMode": "Never",
    }  # fmt: skip
    connect(changed(stub, as_user({"exec": stanza}))).list("")
    assert users(stub) == ["hostsync"]
    plugin.write_text("#!/bin/sh\necho 'no identity here' >&2; exit 3\n")
    error = refused(connect(changed(stub, as_user({"exec": stanza}))))
    assert error.cause is ClusterCause.CREDENTIAL
    assert "no identity here" in str(error)


def test_the_shim_of_the_running_release_is_what_is_run(stub: Stub, tmp_path: Path) -> None:
    shim = tmp_path / "slots/blue/bin/hostsync-credential"
    shim.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\necho 'the running one' >&2; exit 3\n")
    shim.chmod(0o755)
    stanza: dict[str, object] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/usr/local/bin/hostsync-credential",
    }
    kube = KubernetesCluster(changed(stub, as_user({"exec": stanza})), tmp_path / "slots/blue")
    assert "the running one" in str(refused(kube))


@pytest.mark.parametrize(
    "text",
    [
        "", "\t{", "- a", "7", "{}", "clusters: 7", "clusters: []\ncontexts: []",
        "a: &a [*a, *a]", "!!python/object/apply:os.getpid []", "\x00", "{" * 50,
        "clusters: [{name: a, cluster: {server: 7}}]\ncontexts: []\nusers: []",
    ],
)  # fmt: skip
def test_a_file_that_is_no_kubeconfig_is_no_credential(
    tmp_path: Path, connect: Connect, text: str
) -> None:
    path = tmp_path / "garbled"
    path.write_text(text)
    error = refused(connect(path))
    assert error.cause is ClusterCause.CREDENTIAL
    assert str(path) in str(error)


def without(*path: str | int) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]

    return change


def with_authority(data: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["clusters"][0]["cluster"]["certificate-authority-data"] = data

    return change


@pytest.mark.parametrize(
    "change",
    [
        without("current-context"), without("users"), without("contexts", 0, "context", "user"),
        without("clusters", 0), with_authority("!"), with_authority("Z2FyYmFnZQ=="),
        as_user({"exec": {"command": "x"}}), as_user({"token": 7}),
        as_user({"client-certificate": "/none", "client-key": "/none"}),
        as_user({"client-certificate-data": "Z2FyYmFnZQ==", "client-key-data": "Z2FyYmFnZQ=="}),
        as_user({"auth-provider": {"name": "gcp"}}),
    ],
)  # fmt: skip
def test_a_kubeconfig_that_lacks_something_is_no_credential(
    stub: Stub, connect: Connect, change: Change
) -> None:
    assert refused(connect(changed(stub, change))).cause is ClusterCause.CREDENTIAL
    assert stub.requests() == ()


def to_clear_text(document: dict[str, Any]) -> None:
    cluster = document["clusters"][0]["cluster"]
    cluster["server"] = cluster["server"].replace("https", "http")


def to_any_server(document: dict[str, Any]) -> None:
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True


def to_a_plugin_in_the_path(document: dict[str, Any]) -> None:
    version = "client.authentication.k8s.io/v1"
    document["users"][0]["user"] = {"exec": {"apiVersion": version, "command": "plugin"}}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (to_clear_text, "https://"),
        (to_any_server, "insecure-skip-tls-verify"),
        (to_a_plugin_in_the_path, "absolute path"),
    ],
)
def test_a_kubeconfig_that_would_tell_secrets_to_anybody_is_no_credential(
    stub: Stub, connect: Connect, change: Change, word: str
) -> None:
    error = refused(connect(changed(stub, change)))
    assert (error.cause, word in str(error)) == (ClusterCause.CREDENTIAL, True)
    assert stub.requests() == ()


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_kubeconfig_that_others_may_write_is_no_credential(
    stub: Stub, connect: Connect, mode: int
) -> None:
    path = changed(stub, lambda _document: None)
    path.chmod(mode)
    error = refused(connect(path))
    assert (error.cause, f"{mode:04o}" in str(error)) == (ClusterCause.CREDENTIAL, True)
    path.chmod(0o644)
    connect(path).list("")


def test_a_kubeconfig_that_is_not_there_is_waited_for(
    stub: Stub, connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "later"
    kube = connect(path)
    assert str(path) in str(refused(kube))
    path.mkdir()
    assert refused(kube).cause is ClusterCause.CREDENTIAL
    path.rmdir()
    path.write_text(yaml.safe_dump(json.loads(stub.kubeconfig.read_text())))
    kube.list("")


def test_a_server_whose_authority_is_not_ours_gets_no_token(
    stub: Stub, connect: Connect, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(make_authority().pem)

    def change(document: dict[str, Any]) -> None:
        named = document["clusters"][0]["cluster"]
        del named["certificate-authority-data"]
        named["certificate-authority"] = str(other)

    error = refused(connect(changed(stub, change)))
    assert error.cause is ClusterCause.UNREACHABLE
    assert "certificate" in str(error).lower()
    assert stub.requests() == ()
