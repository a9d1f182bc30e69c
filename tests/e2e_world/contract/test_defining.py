"""The contract of definitions: kinds that appear, change and go, and the discovery of them."""

from e2e.world.documents import Document, section, text
from tests.e2e_world.contract.client import MERGE, Client
from tests.e2e_world.contract.conftest import Server, condition, defined, until
from tests.e2e_world.contract.kinds import (
    DEFINITIONS,
    GROUP,
    VERSION,
    VERSION_PATH,
    Widgets,
    definition,
    fresh,
)


def listed(document: Document, name: str) -> list[Document]:
    """Return a list of objects."""
    value = document.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def discovered(client: Client) -> set[str]:
    """Return the resources of the contract's version, status apart."""
    found = client.get(VERSION_PATH)
    return {text(each, "name") for each in listed(found.document, "resources")}


def test_discovery_leads_from_the_groups_to_the_kind(widgets: Widgets, server: Server) -> None:
    groups = server.client.get("/apis").document
    (group,) = [each for each in listed(groups, "groups") if text(each, "name") == GROUP]
    assert section(group, "preferredVersion") == {
        "groupVersion": f"{GROUP}/{VERSION}",
        "version": VERSION,
    }
    one = server.client.get(f"/apis/{GROUP}").document
    assert text(one, "name") == GROUP
    resources = listed(server.client.get(VERSION_PATH).document, "resources")
    (kind,) = [each for each in resources if text(each, "name") == widgets.plural]
    assert (kind["kind"], kind["namespaced"]) == (widgets.kind, False)
    verbs = kind["verbs"]
    assert isinstance(verbs, list)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= {*map(str, verbs)}
    assert f"{widgets.plural}/status" in {text(each, "name") for each in resources}


def test_a_definition_is_established_and_its_kind_then_served(server: Server) -> None:
    plural = fresh("news").replace("-", "")
    absent = server.client.get(f"{VERSION_PATH}/{plural}")
    # Where nothing is defined no API answers: this 404 is plain text, not a Status.
    assert (absent.status, absent.content_type) == (404, "text/plain")
    with defined(server.client, plural, "New") as news:
        path = f"{DEFINITIONS}/{plural}.{GROUP}"
        until(lambda: established(server.client, path))
        until(lambda: plural in discovered(server.client))
        assert news.client.get(news.path).items == []
        again = server.client.call("POST", DEFINITIONS, definition(plural, news.kind))
        assert (again.status, again.reason) == (409, "AlreadyExists")
    until(lambda: plural not in discovered(server.client))
    assert server.client.get(f"{VERSION_PATH}/{plural}").status == 404


def established(client: Client, path: str) -> bool:
    """Whether the definition says that it is established, its names accepted."""
    conditions = section(client.get(path).document, "status").get("conditions")
    return {condition(conditions, name) for name in ("Established", "NamesAccepted")} == {"True"}


def test_a_definition_under_another_name_than_its_own_is_invalid(server: Server) -> None:
    wanted = definition("strays", "Stray") | {"metadata": {"name": f"others.{GROUP}"}}
    refused = server.client.call("POST", DEFINITIONS, wanted)
    assert (refused.status, refused.reason) == (422, "Invalid")


def test_a_kind_that_was_never_defined_is_not_found(server: Server, widgets: Widgets) -> None:
    for path in (f"{VERSION_PATH}/gadgets", f"/apis/{GROUP}/v9/{widgets.plural}"):
        assert server.client.get(path).status == 404
    assert server.client.get(f"{VERSION_PATH}/{widgets.plural}/x/scale").status == 404


def test_a_definition_that_changes_changes_what_is_accepted(server: Server) -> None:
    plural = fresh("changes").replace("-", "")
    with defined(server.client, plural, "Change") as changes:
        changes.make("before")
        path = f"{DEFINITIONS}/{plural}.{GROUP}"
        whole = definition(plural, changes.kind)
        (version,) = listed(section(whole, "spec"), "versions")
        schema = section(section(version, "schema"), "openAPIV3Schema")
        spec = section(section(schema, "properties"), "spec")
        section(section(spec, "properties"), "mode")["enum"] = ["Fast", "Slow", "New"]
        changed = server.client.call("PATCH", path, {"spec": whole["spec"]}, MERGE)
        assert changed.status == 200
        until(lambda: changes.merge("before", {"spec": {"mode": "New"}}).status == 200)


def test_deleting_a_definition_deletes_its_objects_and_ends_their_watches(server: Server) -> None:
    plural = fresh("ends").replace("-", "")
    with defined(server.client, plural, "End") as ends:
        ends.make("one")
        query = {"resourceVersion": ends.client.get(ends.path).version}
        with ends.client.watch(ends.path, **query) as events:
            assert server.client.call("DELETE", f"{DEFINITIONS}/{plural}.{GROUP}").status == 200
            seen = [event.what for event in events if event.type != "ERROR"]
    assert seen[:1] in ([("DELETED", "one")], [])
    with defined(server.client, plural, "End") as again:
        assert again.get("one").status == 404
