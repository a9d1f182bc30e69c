"""What is deployed: the definition as generated, examples that fit it, and no right too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from deploy import crd
from e2e.world.cluster import Cluster as Stub
from e2e.world.documents import Document
from e2e.world.refusals import RefusalError
from hostsync.operations.demand import Reboot, Upgrade, demand_of
from hostsync.operations.kubernetes import KubernetesCluster
from hostsync.operations.operation import Operation
from hostsync.operations.publishing import publish
from hostsync.operations.report import Cause, failed, pending, succeeded, under_way
from tests.operations.conftest import a_definition
from tests.operations.specimens import ME, a_config, an_operation
from tests.operations.test_kubernetes import watched

ROOT = Path(deploy.__file__).parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
NOW = 1_800_000_000.0
VERBS = {"GET": "get", "PATCH": "patch", "DELETE": "delete", "PUT": "update", "POST": "create"}


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def create(stub: Stub, document: Document) -> Operation:
    metadata: Any = document["metadata"]
    key = stub.at("machineoperations", metadata["name"])
    return Operation.parse(stub.registry.create(key, document))


def test_the_definition_is_what_the_code_generates() -> None:
    assert (ROOT / "crd.yaml").read_text() == crd.text()
    assert documents(ROOT / "crd.yaml") == [crd.definition()]


def test_the_definition_is_what_the_contract_says(stub: Stub) -> None:
    spec: Any = a_definition()["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], version["name"], spec["scope"]) == (
        "unbounded-cloud.io", "v1alpha3", "Cluster",
    )  # fmt: skip
    assert spec["names"] | {"description": ""} == {
        "kind": "MachineOperation", "listKind": "MachineOperationList", "description": "",
        "plural": "machineoperations", "singular": "machineoperation", "shortNames": ["mop"],
    }  # fmt: skip
    assert version["selectableFields"] == [{"jsonPath": ".spec.machineRef"}]
    columns = [(each["name"], each["jsonPath"]) for each in version["additionalPrinterColumns"]]
    assert columns == [
        ("Machine", ".spec.machineRef"), ("Operation", ".spec.operationKind"),
        ("Phase", ".status.phase"), ("Age", ".metadata.creationTimestamp"),
    ]  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_accepted_and_means_what_it_says(stub: Stub, path: Path) -> None:
    (document,) = documents(path)
    operation = create(stub, document)
    found = demand_of(operation, a_config())
    is_reboot = operation.kind == "NodeReboot"
    assert isinstance(found, Reboot if is_reboot else Upgrade)
    assert bool(operation.machine) != (operation.selector is not None)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("operationKind", "Dance"), ("operationKind", None), ("ttlSecondsAfterFinished", -1),
        ("ttlSecondsAfterFinished", "60"), ("parameters", {"a": 1}), ("machineRef", 7),
        ("machineSelector", {"matchExpressions": [{"key": "a"}]}),
    ],
)  # fmt: skip
def test_what_no_operation_may_say_is_refused_by_the_server(
    stub: Stub, path: str, value: object
) -> None:
    (document,) = documents(ROOT / "examples/agent-upgrade.yaml")
    document["spec"][path] = value
    if value is None:
        del document["spec"][path]
    with pytest.raises(RefusalError) as caught:
        create(stub, document)
    assert caught.value.status == 422


def test_every_status_that_is_written_fits_the_definition(
    stub: Stub, kube: KubernetesCluster
) -> None:
    reports = [pending("a"), under_way("b"), *(failed(cause, "c") for cause in Cause)]
    for number, report in enumerate([*reports, succeeded("d")]):
        for shape in ("agent-upgrade", "agent-upgrade-many"):
            (document,) = documents(ROOT / f"examples/{shape}.yaml")
            document["metadata"]["name"] = f"{shape}-{number}"
            stored = publish(kube, create(stub, document), report, ME.machine, NOW)
            assert stored is not None
            entry = stored.target(ME.machine)
            assert (entry.phase if entry else stored.phase) == report.phase


def test_the_roles_have_each_right_that_is_used_and_no_other_on_operations(
    stub: Stub, kube: KubernetesCluster
) -> None:
    (named,) = documents(ROOT / "examples/agent-upgrade.yaml")
    (many,) = documents(ROOT / "examples/agent-upgrade-many.yaml")
    operation, selection = create(stub, named), create(stub, many)
    _, version = kube.list("spec.machineRef=host-1")
    watched(kube, str(int(version) - 1), 1)
    kube.node_labels("node-1")
    publish(kube, operation, pending("x"), ME.machine, NOW)
    publish(kube, selection, pending("x"), ME.machine, NOW)
    latest = kube.get(operation.name)
    assert latest is not None
    kube.delete(latest)
    used = {right(each.verb, each.path, each.query) for each in stub.requests()}
    assert used <= granted()
    ours = {each for each in granted() if each[0] == "machineoperations"}
    assert ours <= used
    assert not [verb for _, verb in granted() if verb in ("create", "*", "deletecollection")]


def right(method: str, path: str, query: dict[str, str]) -> tuple[str, str]:
    """The resource and verb that a server asks its authoriser about."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    plural, name, part = (*rest, "", "")[:3]
    verb = VERBS[method]
    if verb == "get" and not name:
        verb = "watch" if query.get("watch") else "list"
    return (f"{plural}/{part}" if part else plural), verb


def granted() -> set[tuple[str, str]]:
    role, _ = documents(ROOT / "rbac.yaml")
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_binding_gives_the_role_that_is_there() -> None:
    role, binding = documents(ROOT / "rbac.yaml")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
        role["kind"], role["metadata"]["name"],
    )  # fmt: skip


def test_an_operation_that_a_test_makes_is_one_that_a_server_stores(stub: Stub) -> None:
    operation = an_operation()
    (document,) = documents(ROOT / "examples/agent-upgrade.yaml")
    document["spec"]["parameters"] = operation.parameters
    assert create(stub, document).parameters == operation.parameters
