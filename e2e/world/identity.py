"""Who exists in the lab's tenant. All of it is made up, but for the id of the AKS server."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from e2e.world.documents import Document

AKS_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"
TENANT = "7a1b4c52-1f6e-4d0c-9b7e-0d6f1f2a9c31"
ISSUER = f"https://sts.windows.net/{TENANT}/"
AUTHORITY_HOST = "login.microsoftonline.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An identity tokens are issued to; `secret` is empty for managed ones."""

    client_id: str
    object_id: str
    resource_id: str = ""
    secret: str = ""


_GROUP = "/subscriptions/3f6d3c0e-0000-4000-8000-5b6d2f8a7e11/resourceGroups/lab/providers"
SYSTEM_ASSIGNED = Principal(
    client_id="c0de0001-53b6-4c3f-8a6d-6f0c5f3b1a01",
    object_id="0b1ec701-53b6-4c3f-8a6d-6f0c5f3b1a01",
    resource_id=f"{_GROUP}/Microsoft.Compute/virtualMachines/kube1-host",
)
USER_ASSIGNED = Principal(
    client_id="c0de0002-53b6-4c3f-8a6d-6f0c5f3b1a02",
    object_id="0b1ec702-53b6-4c3f-8a6d-6f0c5f3b1a02",
    resource_id=f"{_GROUP}/Microsoft.ManagedIdentity/userAssignedIdentities/node",
)
# The secret holds what a form must encode exactly once.
SERVICE_PRINCIPAL = Principal(
    client_id="c0de0003-53b6-4c3f-8a6d-6f0c5f3b1a03",
    object_id="0b1ec703-53b6-4c3f-8a6d-6f0c5f3b1a03",
    secret="lab+secret/with%40=and&ampersand~",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuance:
    """When a token is issued and how long (seconds) it lives."""

    now: Callable[[], float]
    lifetime: Callable[[], int]


def claims_for(who: Principal, audience: str, issued: int, lifetime: int) -> Document:
    """Return the claims of an application token of version 1.0, as AKS accepts them."""
    claims: Document = {
        "aud": audience,
        "iss": ISSUER,
        "iat": issued,
        "nbf": issued,
        "exp": issued + lifetime,
        "appid": who.client_id,
        "appidacr": "1" if who.secret else "2",
        "idp": ISSUER,
        "idtyp": "app",
        "oid": who.object_id,
        "sub": who.object_id,
        "tid": TENANT,
        "uti": uuid4().hex,
        "ver": "1.0",
    }
    return {**claims, "xms_mirid": who.resource_id} if who.resource_id else claims
