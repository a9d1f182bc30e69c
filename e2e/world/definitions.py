"""CustomResourceDefinitions: what is wrong with one, its conditions, the kinds it adds."""

from collections.abc import Iterator

from e2e.world.documents import Document, Json, section, text
from e2e.world.refusals import Cause
from e2e.world.resources import NAME_AND_NAMESPACE, NAME_ONLY, Resource


def kinds_of(definition: Document) -> tuple[Resource, ...]:
    """Return the kinds that a definition adds, one for each served version."""
    spec = section(definition, "spec")
    names = section(spec, "names")
    namespaced = text(spec, "scope") == "Namespaced"
    always = NAME_AND_NAMESPACE if namespaced else NAME_ONLY
    return tuple(
        Resource(
            group=text(spec, "group"),
            version=text(version, "name"),
            plural=text(names, "plural"),
            kind=text(names, "kind"),
            namespaced=namespaced,
            has_status="status" in section(version, "subresources"),
            is_custom=True,
            unconditional_update=False,
            selectable=(*always, *_selectable(version)),
            schema=section(section(version, "schema"), "openAPIV3Schema"),
            singular=text(names, "singular"),
            short_names=tuple(
                each for each in _listed(names, "shortNames") if isinstance(each, str)
            ),
        )
        for version in _versions(definition)
        if version.get("served") is True
    )


def faults_of(definition: Document) -> tuple[Cause, ...]:
    """Return what keeps a definition from being accepted."""
    return tuple(_faults(definition))


def established(definition: Document, now: str) -> Document:
    """Return the status a definition has once its kinds are served; `now` in RFC 3339."""
    spec = section(definition, "spec")
    names = section(spec, "names")
    kind = text(names, "kind")
    default: Document = {"singular": kind.lower(), "listKind": f"{kind}List"}
    accepted = default | names
    conditions: list[Json] = [
        {
            "type": name,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored: list[Json] = [
        text(version, "name") for version in _versions(definition) if version.get("storage") is True
    ]
    return {"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


def _faults(definition: Document) -> Iterator[Cause]:
    spec = section(definition, "spec")
    names = section(spec, "names")
    for field, value in (
        ("spec.group", text(spec, "group")),
        ("spec.scope", text(spec, "scope")),
        ("spec.names.plural", text(names, "plural")),
        ("spec.names.kind", text(names, "kind")),
    ):
        if not value:
            yield Cause(reason="FieldValueRequired", message="Required value", field=field)
    wanted = f"{text(names, 'plural')}.{text(spec, 'group')}"
    if text(definition, "metadata", "name") != wanted:
        said = f'Invalid value: must be spec.names.plural+"."+spec.group, {wanted}'
        yield Cause(reason="FieldValueInvalid", message=said, field="metadata.name")
    versions = _versions(definition)
    if sum(version.get("storage") is True for version in versions) != 1:
        said = "Invalid value: must have exactly one version marked as storage version"
        yield Cause(reason="FieldValueInvalid", message=said, field="spec.versions")
    for index, version in enumerate(versions):
        if not section(section(version, "schema"), "openAPIV3Schema"):
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            said = "Required value: schemas are required"
            yield Cause(reason="FieldValueRequired", message=said, field=where)


def _selectable(version: Document) -> Iterator[str]:
    for each in _listed(version, "selectableFields"):
        if isinstance(each, dict):
            yield text(each, "jsonPath").removeprefix(".")


def _versions(definition: Document) -> list[Document]:
    listed = _listed(section(definition, "spec"), "versions")
    return [version for version in listed if isinstance(version, dict)]


def _listed(document: Document, name: str) -> list[Json]:
    value = document.get(name)
    return value if isinstance(value, list) else []
