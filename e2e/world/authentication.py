"""Who a request is from: bearer tokens verified or looked up, and client certificates.

An authenticator returns what is known of the user, for the request log, or raises
TokenRefusedError; None means that the request shows nothing it could judge.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from e2e.world.documents import Document
from e2e.world.tokens import TokenRefusedError
from e2e.world.web import Request

Authenticator: TypeAlias = Callable[[Request], Document | None]


def by_token(verify: Callable[[str], Document]) -> Authenticator:
    """Accept the bearer tokens whose claims `verify` returns; it raises TokenRefusedError."""

    def authenticate(request: Request) -> Document | None:
        token = _bearer(request)
        if token is None:
            return None
        claims = verify(token)
        return {"user": claims.get("oid"), "token": claims.get("uti"), "issued": claims.get("iat")}

    return authenticate


def by_table(users: Mapping[str, str]) -> Authenticator:
    """Accept the bearer tokens that `users` maps to names."""

    def authenticate(request: Request) -> Document | None:
        token = _bearer(request)
        if token is None:
            return None
        if token not in users:
            raise TokenRefusedError("unknown token")
        return {"user": users[token]}

    return authenticate


def by_certificate(request: Request) -> Document | None:
    """Accept whoever showed a certificate, which TLS has verified; its common name is the user."""
    return {"user": request.peer} if request.peer else None


def first_of(*authenticators: Authenticator) -> Authenticator:
    """Accept what any of them accepts; the last refusal is the one told."""

    def authenticate(request: Request) -> Document | None:
        refused: TokenRefusedError | None = None
        for each in authenticators:
            try:
                facts = each(request)
            except TokenRefusedError as error:
                refused = error
                continue
            if facts is not None:
                return facts
        if refused:
            raise refused
        return None

    return authenticate


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" and token else None
