"""Who is asked for, where, and for which server: the parts a cached credential depends on."""

from credential_shim.errors import UsageError

IMDS_HOST = "169.254.169.254"
SELECTORS = ("client_id", "object_id", "msi_res_id")
"""Kinds of selector, by their name in the identity endpoint's query."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from credential_shim.proofs import Proof


class Endpoint:
    """Address of a local identity endpoint: a literal IP address, never a name to resolve."""

    __slots__ = ("host", "port")

    def __init__(self, host: str = IMDS_HOST, port: int = 80) -> None:
        self.host: Final = host
        self.port: Final = port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Tenant:
    """A client of Microsoft Entra: the authority's origin, the tenant, the client and its proof."""

    __slots__ = ("authority", "client_id", "proof", "tenant_id")

    def __init__(self, *, authority: str, tenant_id: str, client_id: str, proof: "Proof") -> None:
        self.authority: Final = authority
        """``https://HOST[:PORT]``, no path."""
        self.tenant_id: Final = tenant_id
        self.client_id: Final = client_id
        self.proof: Final = proof

    def __str__(self) -> str:
        return f"{self.authority}/{self.tenant_id}"


class Identity:
    """A login mode, the server id, and who: at a local endpoint or of an Entra tenant."""

    __slots__ = ("endpoint", "login", "selector", "server_id", "tenant")

    def __init__(
        self,
        *,
        login: str,
        server_id: str,
        selector: "tuple[str, str] | None" = None,
        endpoint: Endpoint | None = None,
        tenant: Tenant | None = None,
    ) -> None:
        self.login: Final = login
        self.server_id: Final = server_id
        self.selector: Final = selector
        """At a local endpoint, at most one (kind, value); None is the system identity."""
        self.endpoint: Final = endpoint or Endpoint()
        self.tenant: Final = tenant
        """Set for a client of Entra, for which selector and endpoint mean nothing."""

    def __str__(self) -> str:
        if self.tenant is not None:
            return f"login={self.login} identity=client_id={self.tenant.client_id}"
        who = "system" if self.selector is None else f"{self.selector[0]}={self.selector[1]}"
        return f"login={self.login} identity={who}"

    @property
    def place(self) -> str:
        """Where tokens are asked for."""
        return str(self.endpoint if self.tenant is None else self.tenant)


def parse_endpoint(url: str, *, loopback_only: bool = False) -> Endpoint:
    """Parse ``http://HOST[:PORT][/]`` where HOST is loopback or the identity service itself.

    Any other address is refused, so that no kubeconfig can have a token request sent elsewhere.
    Raises UsageError.
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
    allowed = _is_loopback(host) or (host == IMDS_HOST and not loopback_only)
    if rest == url or not valid_port or not allowed:
        raise UsageError(
            "--identity-endpoint must be http://HOST[:PORT] with a loopback address "
            f"{'' if loopback_only else f'or {IMDS_HOST} '}as HOST"
        )
    return Endpoint(host, int(port))


def _is_loopback(host: str) -> bool:
    if host == "::1":
        return True
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all(part.isdecimal() and len(part) <= 3 and int(part) < 256 for part in parts)
        and all(str(int(part)) == part for part in parts)
    )
