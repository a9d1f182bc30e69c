"""Which kinds an API server knows, and the discovery documents that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from e2e.world.documents import Document, Json, section, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind in one version of one API group; the core group's name is empty."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    has_status: bool = False
    # Real servers accept a PUT without resourceVersion for most kinds, not for Leases.
    unconditional_update: bool = True

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version


NODES = Resource(group="", version="v1", plural="nodes", kind="Node", has_status=True)
NAMESPACES = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", has_status=True
)
LEASES = Resource(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    unconditional_update=False,
)
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
)
BUILT_IN = (NODES, NAMESPACES, LEASES, DEFINITIONS)


def defined_by(definition: Document) -> tuple[Resource, ...]:
    """Return the kinds that a CustomResourceDefinition adds, one for each served version."""
    spec = section(definition, "spec")
    names = section(spec, "names")
    versions = spec.get("versions")
    return tuple(
        Resource(
            group=text(spec, "group"),
            version=text(version, "name"),
            plural=text(names, "plural"),
            kind=text(names, "kind"),
            namespaced=text(spec, "scope") == "Namespaced",
            has_status="status" in section(version, "subresources"),
            unconditional_update=False,
        )
        for version in (versions if isinstance(versions, list) else [])
        if isinstance(version, dict) and version.get("served") is True
    )


def discover(path: str, known: Iterable[Resource]) -> Document | None:
    """Return the discovery document at `path`, or None where there is none."""
    kinds = tuple(known)
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", "v1"]:
            return _listing("v1", [kind for kind in kinds if not kind.group])
        case ["apis"]:
            groups: list[Json] = [_group(name, kinds) for name in _group_names(kinds)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _group_names(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["apis", group, version]:
            found = [k for k in kinds if (k.group, k.version) == (group, version)]
            return _listing(f"{group}/{version}", found) if found else None
        case _:
            return None


def _group_names(kinds: Iterable[Resource]) -> list[str]:
    return sorted({kind.group for kind in kinds if kind.group})


def _group(name: str, kinds: Iterable[Resource]) -> Document:
    versions: list[Json] = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in sorted({kind.version for kind in kinds if kind.group == name})
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[-1]}


def _listing(group_version: str, kinds: Iterable[Resource]) -> Document:
    entries: list[Json] = []
    for kind in kinds:
        entries.append(_entry(kind, kind.plural, _VERBS))
        if kind.has_status:
            entries.append(_entry(kind, f"{kind.plural}/status", ("get", "patch", "update")))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def _entry(kind: Resource, name: str, verbs: tuple[str, ...]) -> Document:
    return {
        "name": name,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(verbs),
    }
