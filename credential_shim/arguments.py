"""The command line, the configuration file and the environment, made into one Request.

Two spellings mean the same: ``get-token …`` and ``token kubelogin …``, the latter found in
kubeconfigs written for kubelogin, whose flag and variable names are understood. An explicit flag
wins over the file, and the file over the environment, unlike in kubelogin, where a leaked variable
beats a flag. Whatever loses to a different value is noted.

Error texts name flags, keys and variables and never quote values: a mistyped secret stays unlogged.
"""

import os

from credential_shim.errors import UsageError
from credential_shim.identity import Identity, parse_endpoint
from credential_shim.layers import CLIENT_ID_VARIABLES, Layers, require_plain

GET_TOKEN, CHECK, EXPLAIN, EXEC = "get-token", "check", "explain", "exec"
VERSION, HELP = "version", "help"

DEFAULT_CACHE_DIR = "/run/hostsync/credential"
DEFAULT_CONFIG = "/etc/hostsync/credential.toml"
SHARED_CONFIG = "/var/lib/hostsync/credential/credential.toml"
"""What the host of this machine shares, where the machine has no file of its own."""
LOCAL_LOGINS = ("msi", "arc")
SUPPORTED_LOGINS = (*LOCAL_LOGINS, "spn", "workloadidentity")

_VALUE_FLAGS = {
    "--server-id": "server_id",
    "--login": "login",
    "-l": "login",
    "--client-id": "client_id",
    "--object-id": "object_id",
    "--msi-resource-id": "msi_resource_id",
    "--identity-resource-id": "msi_resource_id",
    "--tenant-id": "tenant_id",
    "-t": "tenant_id",
    "--environment": "cloud",
    "-e": "cloud",
    "--authority-host": "authority_host",
    "--client-secret-file": "client_secret_file",
    "--client-secret-fd": "client_secret_fd",
    "--client-certificate": "client_certificate",
    "--client-certificate-password-file": "client_certificate_password_file",
    "--federated-token-file": "federated_token_file",
    "--ca-file": "ca_file",
    "--on-skew": "on_skew",
    "--identity-endpoint": "identity_endpoint",
    "--cache-dir": "cache_dir",
    "--log": "log",
    "--config": "config",
}
# Found in existing kubelogin stanzas; no token depends on them.
_UNUSED_VALUE_FLAGS = ("--token-cache-dir", "--timeout")
_SWITCHES = {
    "--no-gate": "no_gate",
    "--no-config": "no_config",
    "--send-certificate-chain": "send_certificate_chain",
    "--disable-environment-override": "no_environment",
    "--disable-instance-discovery": "unused",
    "--pop-enabled": "pop",
}
_SECRET_FLAGS = ("--client-secret", "--client-certificate-password", "--password")

_LOGIN_VARIABLE = "AAD_LOGIN_METHOD"
LOG_VARIABLE = "HOSTSYNC_CREDENTIAL_LOG"
NO_LOG = "none"
_LOGS = (NO_LOG, "syslog", "journal")

_SELECTORS = {
    "client_id": "client_id",
    "object_id": "object_id",
    "msi_resource_id": "msi_res_id",
}
_ARC_ENDPOINT = "http://127.0.0.1:40342"
_POP = (
    "proof-of-possession (PoP) tokens, {}, are not implemented: use bearer tokens, or a plugin "
    "that has them"
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from credential_shim.configuration import Configuration


class Request:
    """One request for a credential, fully validated."""

    __slots__ = (
        "ca_file", "cache_dir", "facts", "gated", "identity", "layers", "log", "notes",
        "serve_on_skew",
    )  # fmt: skip

    def __init__(
        self,
        identity: Identity,
        layers: Layers,
        *,
        ca_file: str | None = None,
        cache_dir: str = DEFAULT_CACHE_DIR,
        log: str = NO_LOG,
        serve_on_skew: bool = False,
    ) -> None:
        self.identity: Final = identity
        self.layers: Final = layers
        self.ca_file: Final = ca_file
        """Certificates to trust for Entra instead of the system's; None: those."""
        self.cache_dir: Final = cache_dir
        self.log: Final = log
        """Where one line about this run goes: nowhere, "syslog" or "journal"."""
        self.facts: Final[dict[str, str]] = {}
        """What a run finds out on its way, for that line."""
        self.serve_on_skew: Final = serve_on_skew
        self.gated: Final = "no_gate" not in layers.flags
        self.notes: Final = tuple(layers.notes)
        """Warnings about conflicts, to be said once, when a token is fetched."""


def split_command(argv: "Sequence[str]") -> "tuple[str, Sequence[str]]":
    """Return the command (one of the constants) and what follows it.

    Raises UsageError for anything else.
    """
    if not argv:
        raise UsageError("no command given; see 'hostsync-credential --help'")
    if argv[0] == EXEC:
        # What follows "--" belongs to another program, its --help too.
        return EXEC, argv[1:]
    if argv[0] in (HELP, "--help", "-h") or any(word in ("--help", "-h") for word in argv):
        return HELP, ()
    if argv[0] in (VERSION, "--version") and len(argv) == 1:
        return VERSION, ()
    if argv[0] in (GET_TOKEN, CHECK, EXPLAIN):
        return argv[0], argv[1:]
    if list(argv[:2]) == ["token", "kubelogin"]:
        return GET_TOKEN, argv[2:]
    raise UsageError(
        "unknown command; use get-token, token kubelogin, check, explain, exec or version "
        "(see 'hostsync-credential --help')"
    )


def parse(command: str, words: "Sequence[str]", environ: "Mapping[str, str]") -> Request:
    """Return the request that flags, configuration file and environment make together.

    Raises UsageError naming the flag, key or variable at fault.
    """
    given = read_flags(words)
    if "no_gate" in given and command != CHECK:
        raise UsageError("--no-gate is allowed with 'check' only: tokens are always gated")
    cache_dir = _absolute("--cache-dir", given.get("cache_dir", DEFAULT_CACHE_DIR))
    layers = Layers(given, _file(given, cache_dir), {} if "no_environment" in given else environ)
    identity = _identity(layers)
    return Request(
        identity,
        layers,
        ca_file=layers.take("ca_file"),
        cache_dir=cache_dir,
        log=_log(layers.take("log", LOG_VARIABLE)),
        serve_on_skew=serves_on_skew(layers.take("on_skew")),
    )


def _identity(layers: Layers) -> Identity:
    login = _login(layers)
    tenant = None
    if login not in LOCAL_LOGINS:
        from credential_shim.principal import tenant_of

        tenant = tenant_of(layers, login)
    server_id = layers.take("server_id")
    if server_id is None:
        raise UsageError("--server-id is required: the application id of the API server")
    if tenant is not None:
        return Identity(login=login, server_id=server_id, tenant=tenant)
    selector = layers.take_one(
        {name: CLIENT_ID_VARIABLES if name == "client_id" else () for name in _SELECTORS}
    )
    is_arc = login == "arc"
    endpoint = layers.take("identity_endpoint") or (_ARC_ENDPOINT if is_arc else None)
    return Identity(
        login=login,
        server_id=server_id,
        selector=None if selector is None else (_SELECTORS[selector[0]], selector[1]),
        endpoint=None if endpoint is None else parse_endpoint(endpoint, loopback_only=is_arc),
    )


def _file(given: dict[str, str], cache_dir: str) -> "Configuration | None":
    """The configuration file, looked at but not imported for where there is none."""
    named = "config" in given
    if "no_config" in given:
        if named:
            raise UsageError("--config and --no-config contradict each other")
        return None
    for path in (given["config"],) if named else (DEFAULT_CONFIG, SHARED_CONFIG):
        try:
            status = os.lstat(_absolute("--config", path))
        except OSError as error:
            if not named and isinstance(error, FileNotFoundError | NotADirectoryError):
                continue
            if path == SHARED_CONFIG and isinstance(error, PermissionError):
                # It is root's; for anybody else's kubectl there is none.
                continue
            raise UsageError(f"configuration {path} cannot be read: {error.strerror}") from error
        from credential_shim import configuration

        return configuration.load(path, status, cache_dir)
    return None


def read_flags(words: "Sequence[str]") -> dict[str, str]:
    """Return the flags by the names of their settings; raises UsageError."""
    given: dict[str, str] = {}
    position = 0
    while position < len(words):
        flag, equals, value = words[position].partition("=")
        position += 1
        if flag in _SWITCHES:
            if _switch_is_on(flag, value if equals else "true"):
                given[_SWITCHES[flag]] = "true"
            continue
        _refuse_unknown(flag, position)
        if not equals:
            if position == len(words):
                raise UsageError(f"{flag} needs a value")
            value = words[position]
            position += 1
        name = _VALUE_FLAGS.get(flag)
        if name is None:
            continue
        require_plain(flag, value)
        if given.setdefault(name, value) != value:
            raise UsageError(f"{flag} is given twice with different values")
    if "pop" in given:
        raise UsageError(_POP.format("--pop-enabled"))
    return given


def _refuse_unknown(flag: str, position: int) -> None:
    if flag in _VALUE_FLAGS or flag in _UNUSED_VALUE_FLAGS:
        return
    if flag in _SECRET_FLAGS:
        raise UsageError(
            f"{flag} is refused: a command line is visible to every process on the machine; "
            "put the secret into a file of mode 0600 (see --client-secret-file)"
        )
    if flag == "--pop-claims":
        raise UsageError(_POP.format(flag))
    named = flag.startswith("--") and flag[2:].replace("-", "").isalpha()
    what = f"flag {flag[:40]}" if named else f"argument at position {position}"
    raise UsageError(f"unknown {what} (see 'hostsync-credential --help')")


def _switch_is_on(flag: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise UsageError(f"{flag} takes no value other than true or false")
    return value == "true"


def serves_on_skew(policy: str | None) -> bool:
    """Say what an on-skew policy means, "refuse" being the default; raises UsageError."""
    if policy not in (None, "refuse", "serve"):
        raise UsageError("--on-skew must be 'refuse' or 'serve'")
    return policy == "serve"


def _log(named: str | None) -> str:
    if named is not None and named not in _LOGS:
        raise UsageError(f"--log must be one of {', '.join(_LOGS)}")
    return named or NO_LOG


def _login(layers: Layers) -> str:
    login = layers.take("login", _LOGIN_VARIABLE) or "msi"
    if login not in SUPPORTED_LOGINS:
        # The mode's name helps; anything that does not look like one is not repeated.
        named = f" '{login}'" if login.replace("_", "").isalpha() and len(login) <= 20 else ""
        raise UsageError(
            f"login mode{named} is not supported by this release "
            f"(from {layers.origins['login']}; supported: {', '.join(SUPPORTED_LOGINS)})"
        )
    return login


def _absolute(name: str, path: str) -> str:
    if not path.startswith("/"):
        raise UsageError(f"{name} must be an absolute path")
    return path
