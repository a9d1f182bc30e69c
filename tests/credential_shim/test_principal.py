"""Settings for a client of Entra: clouds, precedence, what is missing or contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from credential_shim.arguments import Request, parse
from credential_shim.errors import UsageError
from credential_shim.principal import CLOUDS

CLIENT = ("--client-id", "client", "--tenant-id", "tenant")
SECRET = ("--client-secret-file", "/secret")


def request(*words: str, login: str = "spn", **environ: str) -> Request:
    return parse("get-token", ["--no-config", "--server-id", "s", "-l", login, *words], environ)


def refusal(*words: str, login: str = "spn", **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        request(*words, login=login, **environ)
    return caught.value.message


def place(made: Request) -> tuple[str, str]:
    assert made.identity.tenant is not None
    return made.identity.tenant.authority, made.identity.tenant.proof.label


def configured(tmp_path: Path, text: str, *words: str, **environ: str) -> Request:
    file = tmp_path / "credential.toml"
    file.write_text(text)
    file.chmod(0o600)
    return parse("get-token", ["--config", str(file), *words], environ)


@pytest.mark.parametrize(
    ("cloud", "host"),
    [
        (None, "login.microsoftonline.com"),
        ("azurepubliccloud", "login.microsoftonline.com"),
        ("AzureUSGovernmentCloud", "login.microsoftonline.us"),
        ("AzureChinaCloud", "login.partner.microsoftonline.cn"),
        ("BleuCloud", "login.sovcloud-identity.fr"),
        ("DelosCloud", "login.sovcloud-identity.de"),
        ("GovSGCloud", "login.sovcloud-identity.sg"),
    ],
)
def test_every_cloud_has_its_authority(cloud: str | None, host: str) -> None:
    words = () if cloud is None else ("--environment", cloud)
    assert place(request(*CLIENT, *SECRET, *words))[0] == f"https://{host}"


def test_an_unknown_cloud_is_refused_and_not_taken_for_public() -> None:
    message = refusal(*CLIENT, *SECRET, "-e", "AzureMoonCloud")
    assert all(cloud in message for cloud in CLOUDS)
    assert "Moon" not in message


def test_an_authority_may_be_named_and_must_fit_the_cloud() -> None:
    older = ("--authority-host", "https://login.chinacloudapi.cn/")
    assert place(request(*CLIENT, *SECRET, *older))[0] == "https://login.chinacloudapi.cn"
    explicit = ("--authority-host", "https://Adfs.example:8443")
    assert place(request(*CLIENT, *SECRET, *explicit))[0] == "https://adfs.example:8443"
    gov = ("--authority-host", "https://login.microsoftonline.us", "-e", "AzurePublicCloud")
    assert "different clouds" in refusal(*CLIENT, *SECRET, *gov)
    variable = {"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"}
    assert place(request(*CLIENT, *SECRET, **variable))[0] == "https://login.microsoftonline.us"
    leaked = {"AZURE_AUTHORITY_HOST": "https://evil.example"}
    assert "AZURE_AUTHORITY_HOST" in refusal(*CLIENT, *SECRET, **leaked)


@pytest.mark.parametrize(
    "url", ["http://login.microsoftonline.com", "https://", "https://a/b", "https://u@a",
            "https://a:0", "https://a:x", "https://-a", "https://[::1]", "a.b"]
)  # fmt: skip
def test_an_authority_is_an_https_origin(url: str) -> None:
    assert "authority host" in refusal(*CLIENT, *SECRET, "--authority-host", url)


def test_what_is_missing_is_named() -> None:
    assert "--client-id" in refusal("-t", "t", *SECRET)
    assert "--tenant-id" in refusal("--client-id", "c", *SECRET)
    assert "--client-secret-file" in refusal(*CLIENT)
    assert "--federated-token-file" in refusal(*CLIENT, login="workloadidentity")
    assert "--tenant-id" in refusal("--client-id", "c", "-t", "../x", *SECRET)
    assert "absolute" in refusal(*CLIENT, "--client-secret-file", "relative")
    assert "descriptor" in refusal(*CLIENT, "--client-secret-fd", "1")


def test_two_proofs_on_one_command_line_are_refused() -> None:
    assert "at most one" in refusal(*CLIENT, *SECRET, "--client-certificate", "/c")
    assert "at most one" in refusal(*CLIENT, *SECRET, "--client-secret-fd", "5")


def test_kubelogins_variables_stand_in_and_inline_secrets_are_warned_about() -> None:
    made = request(
        AAD_SERVICE_PRINCIPAL_CLIENT_ID="c", AZURE_TENANT_ID="t", AZURE_CLIENT_SECRET="canary"
    )
    assert place(made)[1] == "secret the environment variable AZURE_CLIENT_SECRET"
    (note,) = made.notes
    assert "--client-secret-file" in note
    assert "canary" not in note
    certificate = request(
        AZURE_CLIENT_ID="c", AZURE_TENANT_ID="t", AZURE_CLIENT_CERTIFICATE_PATH="/pem"
    )
    assert place(certificate)[1] == "certificate file /pem"
    token = request(
        login="workloadidentity", AZURE_CLIENT_ID="c", AZURE_TENANT_ID="t",
        AZURE_FEDERATED_TOKEN_FILE="/jwt",
    )  # fmt: skip
    assert place(token)[1] == "federated file /jwt"


def test_flag_beats_file_beats_environment_and_each_loser_is_named(tmp_path: Path) -> None:
    text = """
        login = "spn"
        server_id = "file"
        tenant_id = "tenant"
        client_id = "file"
        client_secret_file = "/file"
    """
    made = configured(
        tmp_path, text, "--server-id", "flag", AZURE_CLIENT_ID="variable", AZURE_TENANT_ID="tenant",
        AAD_LOGIN_METHOD="msi", AZURE_CLIENT_SECRET="canary",
    )  # fmt: skip
    assert made.identity.server_id == "flag"
    assert made.identity.tenant is not None
    assert made.identity.tenant.client_id == "file"
    assert place(made)[1] == "secret file /file"
    said = " / ".join(made.notes)
    for loser in ("AAD_LOGIN_METHOD", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "server-id"):
        assert loser in said
    assert "AZURE_TENANT_ID" not in said
    assert "canary" not in said


def test_a_flags_proof_replaces_the_files(tmp_path: Path) -> None:
    text = 'login="spn"\nserver_id="s"\ntenant_id="t"\nclient_id="c"\nclient_secret="canary"\n'
    made = configured(tmp_path, text, "--client-certificate", "/pem", "--send-certificate-chain")
    assert place(made)[1] == "certificate+chain file /pem"
    assert "canary" not in " ".join(made.notes)
    inline = configured(tmp_path, text)
    assert place(inline)[1] == f"secret client_secret in {tmp_path}/credential.toml"
    assert inline.notes == ()
    assert inline.identity.tenant is not None
    assert inline.identity.tenant.proof.text() == "canary"


def test_arc_is_loopback_only_and_explicit() -> None:
    made = request(login="arc")
    assert str(made.identity.endpoint) == "127.0.0.1:40342"
    assert made.identity.tenant is None
    assert "loopback" in refusal("--identity-endpoint", "http://169.254.169.254", login="arc")
    assert str(request(login="arc", IDENTITY_ENDPOINT="http://127.0.0.1:1").identity.endpoint) == (
        "127.0.0.1:40342"
    )
