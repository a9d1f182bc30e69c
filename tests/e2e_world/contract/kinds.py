"""The kind that the contract is checked with, and the words its tests are written in."""

from dataclasses import dataclass
from uuid import uuid4

from e2e.world.documents import Document, section
from tests.e2e_world.contract.client import APPLY, MERGE, Answer, Client

GROUP = "contract.hostsync.test"
VERSION = "v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP_PATH = f"/apis/{GROUP}"
VERSION_PATH = f"{GROUP_PATH}/{VERSION}"

SPEC: Document = {
    "type": "object",
    "required": ["mode"],
    "properties": {
        "mode": {"type": "string", "enum": ["Fast", "Slow"]},
        "machine": {"type": "string", "maxLength": 20, "pattern": "^[a-z0-9-]*$"},
        "count": {"type": "integer", "minimum": 0},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
    },
}
STATUS: Document = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "message": {"type": "string"},
        "targets": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["machineRef"],
            "items": {
                "type": "object",
                "required": ["machineRef"],
                "properties": {
                    "machineRef": {"type": "string"},
                    "phase": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}


def definition(plural: str, kind: str) -> Document:
    """Return a definition of a cluster-scoped kind with a status and one selectable field."""
    schema: Document = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.machine"}],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Widgets:
    """The objects of one kind on one server, under names that no other test uses."""

    client: Client
    plural: str
    kind: str

    @property
    def path(self) -> str:
        """The collection."""
        return f"{VERSION_PATH}/{self.plural}"

    def at(self, name: str, part: str = "") -> str:
        """The path of an object or its status."""
        return f"{self.path}/{name}" + (f"/{part}" if part else "")

    def body(self, name: str, spec: Document | None = None, **more: Document) -> Document:
        """Return an object; `more` are other top-level fields, metadata among them."""
        metadata = more.pop("metadata", {}) | ({"name": name} if name else {})
        head: Document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": self.kind}
        return head | {"metadata": metadata, "spec": {"mode": "Fast"} | (spec or {})} | more

    def make(self, name: str, spec: Document | None = None, **more: Document) -> Answer:
        """Create an object; fails where it is not created."""
        made = self.client.call("POST", self.path, self.body(name, spec, **more))
        assert made.status == 201, made
        return made

    def get(self, name: str) -> Answer:
        """Read an object."""
        return self.client.get(self.at(name))

    def merge(self, name: str, patch: Document, part: str = "") -> Answer:
        """Merge a patch into an object or its status."""
        return self.client.call("PATCH", self.at(name, part), patch, MERGE)

    def apply(
        self, name: str, config: Document, manager: str, part: str = "", **query: str
    ) -> Answer:
        """Apply a configuration to an object or its status, by the name of a manager."""
        named = {"metadata": {"name": name} | section(config, "metadata")}
        head: Document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": self.kind}
        body = head | config | named
        path = self.at(name, part)
        return self.client.call("PATCH", path, body, APPLY, fieldManager=manager, **query)

    def apply_status(self, name: str, status: Document, manager: str, **query: str) -> Answer:
        """Apply a status."""
        config: Document = {"metadata": {"name": name}, "status": status}
        return self.apply(name, config, manager, "status", **query)

    def delete(self, name: str, options: Document | None = None) -> Answer:
        """Delete an object."""
        return self.client.call("DELETE", self.at(name), options)


def fresh(prefix: str) -> str:
    """Return a name that nobody used."""
    return f"{prefix}-{uuid4().hex[:8]}"
