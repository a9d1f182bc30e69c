"""Who is asked for, where, and for which server: the parts a cached credential depends on."""

IMDS_HOST = "169.254.169.254"
SELECTORS = ("client_id", "object_id", "msi_res_id")
"""Kinds of selector, by their name in the identity endpoint's query."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Endpoint:
    """Address of a local identity endpoint: a literal IP address, never a name to resolve."""

    __slots__ = ("host", "port")

    def __init__(self, host: str = IMDS_HOST, port: int = 80) -> None:
        self.host: Final = host
        self.port: Final = port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Identity:
    """A login mode, at most one selector (kind, value), the server id, and the endpoint."""

    __slots__ = ("endpoint", "login", "selector", "server_id")

    def __init__(
        self,
        *,
        login: str,
        server_id: str,
        selector: "tuple[str, str] | None" = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        self.login: Final = login
        self.server_id: Final = server_id
        self.selector: Final = selector
        self.endpoint: Final = endpoint or Endpoint()

    def __str__(self) -> str:
        who = "system" if self.selector is None else f"{self.selector[0]}={self.selector[1]}"
        return f"login={self.login} identity={who}"
