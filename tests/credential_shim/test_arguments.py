"""The command line and the environment."""

from __future__ import annotations

import pytest

from credential_shim.arguments import (
    DEFAULT_CACHE_DIR,
    Request,
    parse,
    split_command,
)
from credential_shim.errors import UsageError
from credential_shim.identity import parse_endpoint

SERVER = ("--server-id", "server")


def request(*words: str, **environ: str) -> Request:
    return parse("get-token", [*SERVER, *words], environ)


def refusal(*words: str, **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        request(*words, **environ)
    assert caught.value.exit_code == 2
    return caught.value.message


def test_defaults_are_the_system_identity_at_the_real_endpoint_refusing_skew() -> None:
    made = request()
    assert made.identity.login == "msi"
    assert made.identity.selector is None
    assert str(made.identity.endpoint) == "169.254.169.254:80"
    assert made.cache_dir == DEFAULT_CACHE_DIR
    assert made.gated
    assert not made.serve_on_skew
    assert made.notes == ()


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["get-token", "--server-id", "s"], "get-token"),
        (["token", "kubelogin", "--server-id", "s"], "get-token"),
        (["check"], "check"),
        (["version"], "version"),
        (["--version"], "version"),
        (["get-token", "--help"], "help"),
        (["-h"], "help"),
    ],
)
def test_both_spellings_and_all_commands_are_understood(argv: list[str], command: str) -> None:
    assert split_command(argv)[0] == command


@pytest.mark.parametrize("argv", [[], ["token"], ["token", "other"], ["frobnicate"]])
def test_unknown_commands_are_usage_errors(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        split_command(argv)


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("--client-id", "client_id"),
        ("--object-id", "object_id"),
        ("--msi-resource-id", "msi_res_id"),
        ("--identity-resource-id", "msi_res_id"),
    ],
)
def test_each_selector_flag_selects_in_both_forms(flag: str, kind: str) -> None:
    assert request(flag, "value").identity.selector == (kind, "value")
    assert request(f"{flag}=value").identity.selector == (kind, "value")


def test_two_selectors_are_refused() -> None:
    assert "at most one" in refusal("--client-id", "a", "--object-id", "b")


def test_environment_selects_when_no_flag_does() -> None:
    made = request(AZURE_CLIENT_ID="from-azure", AAD_LOGIN_METHOD="msi")
    assert made.identity.selector == ("client_id", "from-azure")
    assert made.notes == ()
    assert request(AAD_SERVICE_PRINCIPAL_CLIENT_ID="aad").identity.selector == ("client_id", "aad")


def test_azure_variable_wins_over_aad_variable_and_the_conflict_is_noted() -> None:
    made = request(AZURE_CLIENT_ID="azure", AAD_SERVICE_PRINCIPAL_CLIENT_ID="aad")
    assert made.identity.selector == ("client_id", "azure")
    assert any("AAD_SERVICE_PRINCIPAL_CLIENT_ID" in note for note in made.notes)


def test_explicit_flags_win_over_the_environment_and_conflicts_are_noted_by_name_only() -> None:
    made = request(
        "--login", "msi", "--object-id", "o", AAD_LOGIN_METHOD="spn", AZURE_CLIENT_ID="x"
    )
    assert made.identity.login == "msi"
    assert made.identity.selector == ("object_id", "o")
    assert len(made.notes) == 2
    assert "AAD_LOGIN_METHOD" in made.notes[0]
    assert "AZURE_CLIENT_ID" in made.notes[1]
    assert "x" not in made.notes[1].split()


def test_agreeing_flag_and_variable_are_no_conflict() -> None:
    assert request("--client-id", "c", AZURE_CLIENT_ID="c").notes == ()


def test_environment_can_be_disabled_as_in_kubelogin() -> None:
    made = request("--disable-environment-override", AZURE_CLIENT_ID="x", AAD_LOGIN_METHOD="spn")
    assert made.identity.selector is None


def test_empty_variables_are_unset_variables() -> None:
    made = request(AZURE_CLIENT_ID="", AAD_LOGIN_METHOD="")
    assert made.identity.selector is None
    assert made.identity.login == "msi"


@pytest.mark.parametrize("mode", ["devicecode", "azurecli", "interactive", "ropc", "chained"])
def test_modes_for_people_are_refused_by_name(mode: str) -> None:
    assert f"login mode '{mode}' is not supported by this release" in refusal("-l", mode)
    assert "AAD_LOGIN_METHOD" in refusal(AAD_LOGIN_METHOD=mode)


def test_flags_of_existing_kubelogin_stanzas_are_accepted() -> None:
    made = request(
        "--environment", "AzurePublicCloud", "--tenant-id=t", "-t", "t", "--timeout", "30s",
        "--token-cache-dir", "/x", "--authority-host", "https://a", "-e", "AzurePublicCloud",
        "--disable-instance-discovery",
    )  # fmt: skip
    assert made.identity.selector is None


@pytest.mark.parametrize(
    "words",
    [
        ["--legacy"],
        ["--use-azurerm-env-vars"],
        ["--no-gate"],
        ["--on-skew", "maybe"],
        ["--cache-dir", "relative"],
        ["--client-id"],
        ["--client-id", ""],
        ["--client-id", "two words"],
        ["--client-id", "line\nbreak"],
        ["--client-id", "ümlaut"],
        ["--client-id", "x" * 1025],
        ["--server-id", "another"],
    ],
)
def test_unusable_flags_are_refused(words: list[str]) -> None:
    refusal(*words)


@pytest.mark.parametrize(
    "words", [("--pop-enabled",), ("--pop-enabled=true",), ("--pop-claims", "u=/subscriptions/x")]
)
def test_pop_tokens_are_refused_by_name(words: tuple[str, ...]) -> None:
    assert "PoP" in refusal(*words)
    assert words[0].partition("=")[0] in refusal(*words)
    assert request("--pop-enabled=false").identity.login == "msi"


def test_server_id_is_required() -> None:
    with pytest.raises(UsageError, match="--server-id"):
        parse("get-token", [], {})


@pytest.mark.parametrize(
    "words",
    [
        ["s3cret"],
        ["--s3cret"],
        ["--client-secret", "s3cret"],
        ["--client-secret=s3cret"],
        ["--password=s3cret"],
        ["--x=s3cret"],
        ["--login", "s3cret!"],
        ["--client-id", "s3cret value"],
    ],
)
def test_refusals_never_repeat_a_value(words: list[str]) -> None:
    assert "s3cret" not in refusal(*words)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:4000", "127.0.0.1:4000"),
        ("http://127.0.0.1:4000/", "127.0.0.1:4000"),
        ("http://localhost:1", "127.0.0.1:1"),
        ("http://127.9.8.7", "127.9.8.7:80"),
        ("http://169.254.169.254", "169.254.169.254:80"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_endpoint_may_be_loopback_or_the_real_one(url: str, address: str) -> None:
    assert str(parse_endpoint(url)) == address


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1",
        "127.0.0.1",
        "http://10.0.0.1",
        "http://example.com",
        "http://127.0.0.1@example.com",
        "http://169.254.169.254:80@evil",
        "http://127.0.0.1.evil",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:",
        "http://127.0.0.1/path",
        "http://127.0.0.1//",
        "http://127.0.0.01",
        "http://127.0.0.256",
        "http://127.0.0",
        "http://[::1",
        "http://[::2]",
        "http://127.0.0.1:8\u0660",
        "",
    ],
)
def test_endpoint_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_endpoint(url)
