"""Generates `crd.yaml` from the kinds and phases that the daemon knows.

    python -m deploy.crd > deploy/crd.yaml

`selectableFields` (Kubernetes 1.31 and later by default) lets each host watch its own operations
alone; older servers leave the field out, and hosts then select for themselves.
"""

from __future__ import annotations

import sys

import yaml

from hostsync.operations.operation import GROUP, KIND, PLURAL, VERSION, Kind, Phase

Schema = dict[str, object]

TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
PHASE: Schema = {"type": "string", "enum": [str(phase) for phase in Phase]}
WORDS: Schema = {"type": "object", "additionalProperties": TEXT}


def definition() -> dict[str, object]:
    """The CustomResourceDefinition as a document."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mop"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.machineRef"}],
        "additionalPrinterColumns": [
            {"name": "Machine", "type": "string", "jsonPath": ".spec.machineRef"},
            {"name": "Operation", "type": "string", "jsonPath": ".spec.operationKind"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "schema": {
            "openAPIV3Schema": _object(
                "An operation on one machine, or on those that a selector picks.",
                {
                    "apiVersion": TEXT,
                    "kind": TEXT,
                    "metadata": {"type": "object"},
                    "spec": _spec(),
                    "status": _status(),
                },
                required=["spec"],
            )
        },
    }


def _spec() -> Schema:
    seconds = {"type": "integer", "format": "int32", "minimum": 0}
    return _object(
        "What is to be done, and where.",
        {
            "machineRef": {**TEXT, "description": "The name of the machine that is meant."},
            "machineSelector": _selector(),
            "operationKind": {"type": "string", "enum": [str(kind) for kind in Kind]},
            "parameters": {
                **WORDS,
                "description": "AgentUpgrade: downloadURL, sha256 (of the archive); optionally "
                "agent, allowKnownBad. NodeReboot: optionally machine.",
            },
            "ttlSecondsAfterFinished": {
                **seconds,
                "description": "Deleted so long after its end; kept when unset.",
            },
        },
        required=["operationKind"],
    )


def _selector() -> Schema:
    expression = _object(
        "One requirement on a label.",
        {"key": TEXT, "operator": TEXT, "values": {"type": "array", "items": TEXT}},
        required=["key", "operator"],
    )
    return _object(
        "Instead of machineRef: the labels of the machines' Nodes.",
        {"matchLabels": WORDS, "matchExpressions": {"type": "array", "items": expression}},
    )


def _status() -> Schema:
    return _object(
        "How far it has come; written by the machines alone.",
        {
            "phase": PHASE,
            "message": TEXT,
            "startedAt": TIME,
            "completedAt": TIME,
            "observedMachineGeneration": COUNT,
            "conditions": _list_map("type", _condition()),
            "targets": _list_map("machineRef", _target()),
        },
    )


def _condition() -> Schema:
    return _object(
        "A metav1.Condition.",
        {
            "type": TEXT,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": TEXT,
            "message": TEXT,
            "lastTransitionTime": TIME,
            "observedGeneration": COUNT,
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    )


def _target() -> Schema:
    return _object(
        "One machine's share of an operation that selects several.",
        {
            "machineRef": TEXT,
            "phase": PHASE,
            "stage": TEXT,
            "message": TEXT,
            "startedAt": TIME,
            "completedAt": TIME,
            "observedGeneration": COUNT,
            "attempts": COUNT,
            "lastAttemptAt": TIME,
        },
        required=["machineRef"],
    )


def _list_map(key: str, items: Schema) -> Schema:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": items,
    }


def _object(description: str, properties: Schema, required: list[str] | None = None) -> Schema:
    found: Schema = {"type": "object", "description": description, "properties": properties}
    return found | ({"required": required} if required else {})


def text() -> str:
    """The manifest, as `crd.yaml` holds it."""

    class Plain(yaml.SafeDumper):
        """Writes what is shared out in full each time, for people to read."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    said = yaml.dump(definition(), Dumper=Plain, sort_keys=False, width=100)
    return f"# Generated by `python -m deploy.crd`; do not edit.\n{said}"


if __name__ == "__main__":
    sys.stdout.write(text())
