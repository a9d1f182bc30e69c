"""The API server keeps the promises that clients lean on: versions, conflicts, status, watches."""

import json

import pytest

from e2e.world.api import KubeApi
from e2e.world.authentication import by_token
from e2e.world.documents import Document, decode, encode, section, text
from e2e.world.identity import AKS_SERVER, SYSTEM_ASSIGNED, claims_for
from e2e.world.kube import FETCH_PAUSE, Issuer, furnish
from e2e.world.refusals import RefusalError
from e2e.world.registry import Registry
from e2e.world.resources import LEASES, Key
from e2e.world.tokens import TokenRefusedError
from e2e.world.web import Request, Response
from tests.e2e_world.keys import SIGNER, STRANGER

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODE = "/api/v1/nodes/kube1"


def authenticate(token: str) -> Document:
    if token != "good":
        raise TokenRefusedError("another audience")
    return {"oid": "node", "uti": "t1", "iat": 7}


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(furnish(Registry()), by_token(authenticate))


def call(
    api: KubeApi,
    method: str,
    path: str,
    body: Document | None = None,
    token: str = "good",
    **query: str,
) -> Response:
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"authorization": f"Bearer {token}", "content-type": content}
    raw = encode(body) if body is not None else b""
    return api(Request(method=method, path=path, query=query, headers=headers, body=raw))


def shown(response: Response) -> Document:
    assert response.status in (200, 201), response.body
    return decode(response.body)


def version_of(document: Document) -> str:
    return text(document, "metadata", "resourceVersion")


def lease(holder: str, **metadata: str) -> Document:
    return {"metadata": {"name": "kube1", **metadata}, "spec": {"holderIdentity": holder}}


def test_without_a_good_token_the_answer_is_a_401_status(api: KubeApi) -> None:
    refused = call(api, "GET", NODE, token="bad")
    assert refused.status == 401
    assert decode(refused.body)["kind"] == "Status"
    assert refused.facts["refused"] == "Unauthorized: another audience"
    assert api(Request(method="GET", path=NODE)).status == 401
    assert api(Request(method="GET", path="/readyz")).body == b"ok"


def test_the_log_gets_who_asked_and_with_which_token(api: KubeApi) -> None:
    assert call(api, "GET", NODE).facts == {"user": "node", "token": "t1", "issued": 7}


def test_discovery_leads_to_every_kind_served(api: KubeApi) -> None:
    groups = shown(call(api, "GET", "/apis"))["groups"]
    assert isinstance(groups, list)
    listed = [
        shown(call(api, "GET", f"/apis/{text(section(group, 'preferredVersion'), 'groupVersion')}"))
        for group in groups
        if isinstance(group, dict)
    ]
    text_of_all = json.dumps([*listed, shown(call(api, "GET", "/api/v1"))])
    for name in ("leases", "nodes", "nodes/status", "customresourcedefinitions"):
        assert f'"name": "{name}"' in text_of_all


def test_a_lease_is_created_replaced_and_guarded_by_its_version(api: KubeApi) -> None:
    assert call(api, "GET", f"{LEASE}/kube1").status == 404
    created = shown(call(api, "POST", LEASE, lease("a")))
    assert call(api, "POST", LEASE, lease("a")).status == 409
    current = lease("b", resourceVersion=version_of(created))
    replaced = shown(call(api, "PUT", f"{LEASE}/kube1", current))
    assert int(version_of(replaced)) > int(version_of(created))
    assert replaced["spec"] == {"holderIdentity": "b"}
    stale = call(api, "PUT", f"{LEASE}/kube1", current)
    assert (stale.status, decode(stale.body)["reason"]) == (409, "Conflict")
    assert call(api, "PUT", f"{LEASE}/kube1", lease("c")).status == 422


def test_an_object_made_anew_under_the_same_name_has_another_uid(api: KubeApi) -> None:
    first = shown(call(api, "POST", LEASE, lease("a")))
    assert call(api, "DELETE", f"{LEASE}/kube1").status == 200
    second = shown(call(api, "POST", LEASE, lease("a")))
    uid = text(first, "metadata", "uid")
    assert uid != text(second, "metadata", "uid")
    meant_for_first = lease("b", uid=uid, resourceVersion=version_of(second))
    assert call(api, "PUT", f"{LEASE}/kube1", meant_for_first).status == 409


def test_status_and_the_rest_are_written_through_their_own_endpoints_only(api: KubeApi) -> None:
    both: Document = {"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"phase": "Running"}}
    node = shown(call(api, "PATCH", NODE, both))
    assert node["spec"] == {"podCIDR": "10.0.0.0/24"}
    assert "status" not in node
    node = shown(call(api, "PATCH", f"{NODE}/status", {"spec": {}, "status": {"phase": "Up"}}))
    assert node["spec"] == {"podCIDR": "10.0.0.0/24"}
    assert node["status"] == {"phase": "Up"}
    # A Node's generation is not counted; that of custom resources is, see the contract.
    assert "generation" not in section(node, "metadata")


def test_unknown_paths_methods_bodies_and_patches_are_refused_with_a_status(api: KubeApi) -> None:
    assert call(api, "GET", "/api/v1/pods").status == 404
    assert call(api, "GET", f"{NODE}/proxy").status == 404
    assert call(api, "GET", f"{LEASE}/kube1/status").status == 404
    assert call(api, "PUT", "/api/v1/nodes").status == 405
    assert call(api, "POST", LEASE, {"metadata": {}}).status == 422
    headers = {"authorization": "Bearer good", "content-type": "application/json"}
    patch = Request(method="PATCH", path=NODE, headers=headers, body=b"{}")
    assert api(patch).status == 415
    broken = Request(method="POST", path=LEASE, headers=headers, body=b"{")
    assert api(broken).status == 400


def test_documents_handed_out_are_not_the_stored_ones() -> None:
    registry = furnish(Registry())
    key = Key(resource=LEASES, namespace="kube-node-lease", name="kube1")
    registry.create(key, lease("a"))
    section(registry.get(key), "spec")["holderIdentity"] = "changed"
    assert registry.get(key)["spec"] == {"holderIdentity": "a"}
    with pytest.raises(RefusalError, match="not found"):
        registry.get(Key(resource=LEASES, namespace="default", name="kube1"))


def test_forged_tokens_cannot_make_the_server_ask_for_keys_more_than_once_a_pause() -> None:
    asked: list[float] = []
    now = [1_800_000_000.0]

    def fetch() -> Document:
        asked.append(now[0])
        return SIGNER.published()

    issuer = Issuer(fetch, lambda: now[0])
    claims = claims_for(SYSTEM_ASSIGNED, AKS_SERVER, int(now[0]), 60)
    assert issuer.authenticate(SIGNER.sign(claims))["oid"] == SYSTEM_ASSIGNED.object_id
    for _ in range(5):
        with pytest.raises(TokenRefusedError):
            issuer.authenticate(STRANGER.sign(claims))
    assert len(asked) == 1
    now[0] += FETCH_PAUSE
    with pytest.raises(TokenRefusedError, match="unknown key"):
        issuer.authenticate(STRANGER.sign(claims))
    assert len(asked) == 2


def test_keys_out_of_reach_are_a_refusal_and_are_asked_for_again() -> None:
    now = [1_800_000_000.0]
    answers: list[Document | OSError] = [OSError("no route"), SIGNER.published()]

    def fetch() -> Document:
        given = answers.pop(0)
        if isinstance(given, OSError):
            raise given
        return given

    issuer = Issuer(fetch, lambda: now[0])
    token = SIGNER.sign(claims_for(SYSTEM_ASSIGNED, AKS_SERVER, int(now[0]), 60))
    with pytest.raises(TokenRefusedError, match="no keys"):
        issuer.authenticate(token)
    now[0] += FETCH_PAUSE
    assert issuer.authenticate(token)
