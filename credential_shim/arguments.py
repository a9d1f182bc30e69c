"""The command line and the environment, parsed once into a Request.

Two spellings mean the same: ``get-token …`` and ``token kubelogin …``, the latter found in
kubeconfigs written for kubelogin, whose flag and variable names are understood. An explicit flag
always wins over the environment, unlike in kubelogin, where a leaked variable beats a flag.

Error texts name flags and variables and never quote values: a mistyped secret stays unlogged.
"""

from credential_shim.errors import UsageError
from credential_shim.identity import IMDS_HOST, SELECTORS, Endpoint, Identity

GET_TOKEN, CHECK, VERSION, HELP = "get-token", "check", "version", "help"

DEFAULT_CACHE_DIR = "/run/hostsync/credential"
SUPPORTED_LOGINS = ("msi",)

_VALUE_FLAGS = {
    "--server-id": "server-id",
    "--login": "login",
    "-l": "login",
    "--client-id": "client_id",
    "--object-id": "object_id",
    "--msi-resource-id": "msi_res_id",
    "--identity-resource-id": "msi_res_id",
    "--on-skew": "on-skew",
    "--identity-endpoint": "identity-endpoint",
    "--cache-dir": "cache-dir",
}
_UNUSED_VALUE_FLAGS = (
    # Found in existing kubelogin stanzas; a managed identity's token depends on none of them.
    "--environment",
    "-e",
    "--tenant-id",
    "-t",
    "--authority-host",
    "--token-cache-dir",
    "--timeout",
)
_SWITCHES = {
    "--no-gate": "no-gate",
    "--disable-environment-override": "no-environment",
    "--disable-instance-discovery": "unused",
}
_SECRET_FLAGS = ("--client-secret", "--client-certificate-password", "--password")

_LOGIN_VARIABLE = "AAD_LOGIN_METHOD"
_CLIENT_ID_VARIABLES = ("AZURE_CLIENT_ID", "AAD_SERVICE_PRINCIPAL_CLIENT_ID")

_LONGEST_VALUE = 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final


class Request:
    """One request for a credential, fully validated."""

    __slots__ = ("cache_dir", "gated", "identity", "notes", "serve_on_skew")

    def __init__(
        self,
        identity: Identity,
        *,
        cache_dir: str = DEFAULT_CACHE_DIR,
        serve_on_skew: bool = False,
        gated: bool = True,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.identity: Final = identity
        self.cache_dir: Final = cache_dir
        self.serve_on_skew: Final = serve_on_skew
        self.gated: Final = gated
        self.notes: Final = notes
        """Warnings about conflicts, to be said once, when a token is fetched."""


def split_command(argv: "Sequence[str]") -> "tuple[str, Sequence[str]]":
    """Return the command (one of the four constants) and what follows it.

    Raises UsageError for anything else.
    """
    if not argv:
        raise UsageError("no command given; see 'hostsync-credential --help'")
    if argv[0] in (HELP, "--help", "-h") or any(word in ("--help", "-h") for word in argv):
        return HELP, ()
    if argv[0] in (VERSION, "--version") and len(argv) == 1:
        return VERSION, ()
    if argv[0] in (GET_TOKEN, CHECK):
        return argv[0], argv[1:]
    if list(argv[:2]) == ["token", "kubelogin"]:
        return GET_TOKEN, argv[2:]
    raise UsageError(
        "unknown command; use get-token, token kubelogin, check or version "
        "(see 'hostsync-credential --help')"
    )


def parse(command: str, words: "Sequence[str]", environ: "Mapping[str, str]") -> Request:
    """Return the request that flags and environment make together.

    Raises UsageError naming the flag or variable at fault.
    """
    given = _read_flags(words)
    if "no-gate" in given and command != CHECK:
        raise UsageError("--no-gate is allowed with 'check' only: tokens are always gated")
    if given.pop("no-environment", ""):
        environ = {}
    notes: list[str] = []
    login = _login(given, environ, notes)
    selector = _selector(given, environ, notes)
    if "server-id" not in given:
        raise UsageError("--server-id is required: the application id of the API server")
    on_skew = given.get("on-skew", "refuse")
    if on_skew not in ("refuse", "serve"):
        raise UsageError("--on-skew must be 'refuse' or 'serve'")
    endpoint = given.get("identity-endpoint")
    return Request(
        Identity(
            login=login,
            server_id=given["server-id"],
            selector=selector,
            endpoint=Endpoint() if endpoint is None else parse_endpoint(endpoint),
        ),
        cache_dir=_directory(given.get("cache-dir", DEFAULT_CACHE_DIR)),
        serve_on_skew=on_skew == "serve",
        gated="no-gate" not in given,
        notes=tuple(notes),
    )


def _read_flags(words: "Sequence[str]") -> dict[str, str]:
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
        _require_plain(flag, value)
        if given.setdefault(name, value) != value:
            raise UsageError(f"{flag} is given twice with different values")
    return given


def _refuse_unknown(flag: str, position: int) -> None:
    if flag in _VALUE_FLAGS or flag in _UNUSED_VALUE_FLAGS:
        return
    if flag in _SECRET_FLAGS:
        raise UsageError(
            f"{flag} is refused: a command line is visible to every process on the machine"
        )
    name = flag if flag.startswith("--") and flag[2:].replace("-", "").isalpha() else "argument"
    raise UsageError(
        f"unknown {name} at position {position} (see 'hostsync-credential --help')"
        if name == "argument"
        else f"unknown flag {name[:40]} (see 'hostsync-credential --help')"
    )


def _switch_is_on(flag: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise UsageError(f"{flag} takes no value other than true or false")
    return value == "true"


def _require_plain(name: str, value: str) -> None:
    """Values go into a query, a file name and a journal: printable ASCII without spaces."""
    if not value or len(value) > _LONGEST_VALUE:
        raise UsageError(f"{name} needs a value of 1 to {_LONGEST_VALUE} characters")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"{name} may contain only printable ASCII without spaces")


def _login(given: dict[str, str], environ: "Mapping[str, str]", notes: list[str]) -> str:
    flag, variable = given.get("login"), environ.get(_LOGIN_VARIABLE) or None
    login = flag or variable or "msi"
    if login not in SUPPORTED_LOGINS:
        where = "--login" if flag else _LOGIN_VARIABLE
        # The mode's name helps; anything that does not look like one is not repeated.
        named = f" '{login}'" if login.replace("_", "").isalpha() and len(login) <= 20 else ""
        raise UsageError(
            f"login mode{named} is not supported by this release "
            f"(from {where}; supported: {', '.join(SUPPORTED_LOGINS)})"
        )
    if flag and variable and flag != variable:
        notes.append(f"--login overrides the environment variable {_LOGIN_VARIABLE}")
    return login


def _selector(
    given: dict[str, str], environ: "Mapping[str, str]", notes: list[str]
) -> tuple[str, str] | None:
    explicit = [(kind, given[kind]) for kind in SELECTORS if kind in given]
    if len(explicit) > 1:
        raise UsageError(
            "at most one of --client-id, --object-id and --msi-resource-id may be given"
        )
    inherited = [(name, environ[name]) for name in _CLIENT_ID_VARIABLES if environ.get(name)]
    if not explicit and not inherited:
        return None
    if explicit:
        notes.extend(
            f"the explicit identity flag overrides the environment variable {name}"
            for name, value in inherited
            if ("client_id", value) != explicit[0]
        )
        return explicit[0]
    name, value = inherited[0]
    _require_plain(name, value)
    notes.extend(
        f"environment variable {name} overrides {other}"
        for other, different in inherited[1:]
        if different != value
    )
    return "client_id", value


def _directory(path: str) -> str:
    if not path.startswith("/"):
        raise UsageError("--cache-dir must be an absolute path")
    return path


def parse_endpoint(url: str) -> Endpoint:
    """Parse ``http://HOST[:PORT][/]`` where HOST is loopback or the identity service itself.

    For tests and local proxies. Any other address is refused, so that no kubeconfig can have a
    token request sent elsewhere. Raises UsageError.
    """
    rest = url.removeprefix("http://")
    authority = rest.removesuffix("/")
    if authority.startswith("[::1]"):
        host, tail = "::1", authority[5:]
    else:
        host, colon, port_text = authority.partition(":")
        tail = colon + port_text
    port = tail[1:] if tail.startswith(":") else "80" if not tail else ""
    host = "127.0.0.1" if host == "localhost" else host
    valid_port = port.isascii() and port.isdecimal() and 0 < int(port[:9]) < 65536
    if rest == url or not valid_port or not _is_local(host):
        raise UsageError(
            "--identity-endpoint must be http://HOST[:PORT] with a loopback address "
            f"or {IMDS_HOST} as HOST"
        )
    return Endpoint(host, int(port))


def _is_local(host: str) -> bool:
    if host in (IMDS_HOST, "::1"):
        return True
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all(part.isdecimal() and len(part) <= 3 and int(part) < 256 for part in parts)
        and all(str(int(part)) == part for part in parts)
    )
