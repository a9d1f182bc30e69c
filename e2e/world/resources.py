"""Which kinds an API server knows, and the discovery documents that follow from them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from e2e.world.documents import Document, Json
from e2e.world.refusals import About

NAME_ONLY = ("metadata.name",)
NAME_AND_NAMESPACE = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind in one version of one API group; the core group's name is empty.

    Two are equal if they are the same kind, whatever a definition says of its present shape.
    `schema` is {} for kinds whose shape is not checked, `selectable` what field selectors may name.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = field(default=False, compare=False)
    has_status: bool = field(default=False, compare=False)
    is_custom: bool = field(default=False, compare=False)
    # Real servers accept a PUT without resourceVersion for most kinds, not for Leases or customs.
    unconditional_update: bool = field(default=True, compare=False)
    selectable: tuple[str, ...] = field(default=NAME_ONLY, compare=False)
    schema: Document = field(default_factory=dict, compare=False, repr=False)
    singular: str = field(default="", compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The plural with its group, as in `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def full_kind(self) -> str:
        """The kind with its group, as in `Lease.coordination.k8s.io`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Where an object lives; without a name, a whole collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        """The object as API servers call it in errors."""
        return f'{self.resource.full_name} "{self.name}"'

    @property
    def about(self) -> About:
        """The object as the details of most refusals name it."""
        return About(name=self.name, group=self.resource.group, kind=self.resource.plural)

    def holds(self, other: "Key") -> bool:
        """Whether `other` is in this collection."""
        return self.resource == other.resource and self.namespace in ("", other.namespace)


NODES = Resource(
    group="",
    version="v1",
    plural="nodes",
    kind="Node",
    has_status=True,
    selectable=(*NAME_ONLY, "spec.unschedulable"),
)
NAMESPACES = Resource(
    group="",
    version="v1",
    plural="namespaces",
    kind="Namespace",
    has_status=True,
    selectable=(*NAME_ONLY, "status.phase"),
)
LEASES = Resource(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    unconditional_update=False,
    selectable=NAME_AND_NAMESPACE,
)
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    has_status=True,
    unconditional_update=False,
    short_names=("crd", "crds"),
)
BUILT_IN = (NODES, NAMESPACES, LEASES, DEFINITIONS)


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


_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _entry(kind: Resource, name: str, verbs: tuple[str, ...]) -> Document:
    is_part = "/" in name
    entry: Document = {
        "name": name,
        "singularName": "" if is_part else kind.singular or kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(verbs),
    }
    if kind.short_names and not is_part:
        entry["shortNames"] = list(kind.short_names)
    return entry
