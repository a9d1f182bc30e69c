"""The contract of writes: identity, versions, status apart, patches, schemas, deletions."""

import pytest

from e2e.world.documents import Document, Json, section, text
from tests.e2e_world.contract.client import OPERATIONS, Answer
from tests.e2e_world.contract.kinds import Widgets, fresh


def metadata(answer: Answer) -> Document:
    """Return an object's metadata."""
    return section(answer.document, "metadata")


def put(widgets: Widgets, name: str, document: Document, part: str = "") -> Answer:
    """Replace an object or its status."""
    return widgets.client.call("PUT", widgets.at(name, part), document)


def test_a_new_object_has_an_identity_a_version_and_generation_one(widgets: Widgets) -> None:
    name = fresh("new")
    made = widgets.make(name)
    assert metadata(made)["name"] == name
    assert metadata(made)["generation"] == 1
    assert text(made.document, "metadata", "uid")
    assert text(made.document, "metadata", "creationTimestamp").endswith("Z")
    again = widgets.client.call("POST", widgets.path, widgets.body(name))
    assert (again.status, again.reason) == (409, "AlreadyExists")


def test_an_object_made_anew_under_the_same_name_has_another_uid(widgets: Widgets) -> None:
    name = fresh("again")
    first = widgets.make(name)
    assert widgets.delete(name).status == 200
    second = widgets.make(name)
    assert metadata(first)["uid"] != metadata(second)["uid"]


def test_a_name_is_generated_where_one_is_asked_for(widgets: Widgets) -> None:
    wanted = widgets.body("", metadata={"generateName": "made-"})
    made = [widgets.client.call("POST", widgets.path, wanted) for _ in range(2)]
    names = {text(each.document, "metadata", "name") for each in made}
    assert [each.status for each in made] == [201, 201]
    assert len(names) == 2
    assert all(name.startswith("made-") and len(name) > len("made-") for name in names)


def test_an_object_without_a_name_or_with_a_bad_one_is_invalid(widgets: Widgets) -> None:
    for wanted in (widgets.body(""), widgets.body("Not_A_Name")):
        refused = widgets.client.call("POST", widgets.path, wanted)
        assert (refused.status, refused.reason) == (422, "Invalid")


def test_an_object_must_say_what_it_is(widgets: Widgets) -> None:
    wanted = widgets.body(fresh("kindless"))
    broken = (
        {name: value for name, value in wanted.items() if name != "kind"},
        wanted | {"kind": "Other"},
        wanted | {"apiVersion": "contract.hostsync.test/v9"},
    )
    answers = [widgets.client.call("POST", widgets.path, each) for each in broken]
    assert [each.status for each in answers] == [400, 422, 400]


def test_what_is_not_json_and_what_is_no_known_patch_is_refused(widgets: Widgets) -> None:
    name = fresh("format")
    widgets.make(name)
    refused = widgets.client.call("PATCH", widgets.at(name), {}, "text/plain")
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")
    assert widgets.client.call("POST", widgets.path, "words").status == 400


def test_a_put_must_name_the_version_it_replaces(widgets: Widgets) -> None:
    name = fresh("put")
    made = widgets.make(name)
    assert put(widgets, name, widgets.body(name)).status == 422
    current = widgets.body(name, {"count": 1}, metadata={"resourceVersion": made.version})
    assert put(widgets, name, current).status == 200
    stale = put(widgets, name, current)
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert section(widgets.get(name).document, "spec")["count"] == 1


def test_a_put_to_another_name_is_a_bad_request(widgets: Widgets) -> None:
    name = fresh("named")
    made = widgets.make(name)
    other = widgets.body("other", metadata={"resourceVersion": made.version})
    assert put(widgets, name, other).status == 400


def test_a_put_for_another_uid_conflicts(widgets: Widgets) -> None:
    name = fresh("uid")
    made = widgets.make(name)
    meant: Document = {
        "resourceVersion": made.version,
        "uid": "00000000-0000-0000-0000-000000000000",
    }
    refused = put(widgets, name, widgets.body(name, metadata=meant))
    assert (refused.status, refused.reason) == (409, "Conflict")


@pytest.mark.parametrize("part", ["", "status"])
def test_a_patch_that_names_a_version_conflicts_with_another(widgets: Widgets, part: str) -> None:
    name = fresh("patch")
    made = widgets.make(name)
    change: Document = {"spec": {"count": 1}, "status": {"phase": "On"}}
    named: Document = {"metadata": {"resourceVersion": made.version}}
    assert widgets.merge(name, change | named, part).status == 200
    later: Document = {"spec": {"count": 2}, "status": {"phase": "Off"}}
    refused = widgets.merge(name, later | named, part)
    assert (refused.status, refused.reason) == (409, "Conflict")


def test_the_servers_own_fields_are_not_the_clients_to_change(widgets: Widgets) -> None:
    name = fresh("own")
    made = widgets.make(name)
    told: Document = {"generation": 99, "creationTimestamp": "2001-01-01T00:00:00Z"}
    changed = widgets.merge(name, {"metadata": told | {"labels": {"a": "b"}}})
    assert metadata(changed)["creationTimestamp"] == metadata(made)["creationTimestamp"]
    assert metadata(changed)["generation"] == 1
    assert metadata(changed)["labels"] == {"a": "b"}


def test_status_is_written_by_its_own_endpoint_and_by_no_other(widgets: Widgets) -> None:
    name = fresh("status")
    made = widgets.make(name, status={"phase": "Made"})
    assert "status" not in made.document
    widgets.merge(name, {"status": {"phase": "Main"}, "spec": {"count": 1}})
    assert "status" not in widgets.get(name).document
    told: Document = {"status": {"phase": "On"}, "spec": {"count": 2}}
    told["metadata"] = {"labels": {"a": "b"}}
    changed = widgets.merge(name, told, "status")
    assert changed.document["status"] == {"phase": "On"}
    assert section(changed.document, "spec")["count"] == 1
    assert "labels" not in metadata(changed)
    replaced = widgets.merge(name, {"spec": {"count": 3}})
    assert replaced.document["status"] == {"phase": "On"}


def test_the_status_of_an_object_is_put_under_its_version(widgets: Widgets) -> None:
    name = fresh("put-status")
    made = widgets.make(name)
    whole = made.document | {"status": {"phase": "On"}}
    assert put(widgets, name, whole, "status").document["status"] == {"phase": "On"}
    stale = put(widgets, name, whole, "status")
    assert (stale.status, stale.reason) == (409, "Conflict")
    read = widgets.client.get(widgets.at(name, "status"))
    assert read.document == widgets.get(name).document


def test_a_generation_grows_with_the_spec_alone(widgets: Widgets) -> None:
    name = fresh("generation")
    widgets.make(name)
    assert metadata(widgets.merge(name, {"status": {"phase": "On"}}, "status"))["generation"] == 1
    assert metadata(widgets.merge(name, {"metadata": {"labels": {"a": "b"}}}))["generation"] == 1
    assert metadata(widgets.merge(name, {"spec": {"count": 1}}))["generation"] == 2


def test_a_merge_patch_removes_what_it_names_null(widgets: Widgets) -> None:
    name = fresh("merge")
    widgets.make(name, {"machine": "m", "labels": {"a": "1", "b": "2"}, "list": ["x", "y"]})
    patch: Document = {"spec": {"machine": None, "labels": {"a": None, "c": "3"}, "list": ["z"]}}
    spec = section(widgets.merge(name, patch).document, "spec")
    assert spec == {"mode": "Fast", "labels": {"b": "2", "c": "3"}, "list": ["z"]}


def test_a_json_patch_is_carried_out_in_order_or_not_at_all(widgets: Widgets) -> None:
    name = fresh("json-patch")
    widgets.make(name, {"list": ["a"], "labels": {"x/y": "1"}})

    def operate(*operations: Json) -> Answer:
        return widgets.client.call("PATCH", widgets.at(name), [*operations], OPERATIONS)

    done = operate(
        {"op": "test", "path": "/spec/mode", "value": "Fast"},
        {"op": "add", "path": "/spec/list/-", "value": "b"},
        {"op": "add", "path": "/spec/list/0", "value": "first"},
        {"op": "remove", "path": "/spec/labels/x~1y"},
        {"op": "replace", "path": "/spec/mode", "value": "Slow"},
    )
    assert done.status == 200, done
    spec = section(done.document, "spec")
    assert (spec["list"], spec["mode"]) == (["first", "a", "b"], "Slow")
    failed = operate(
        {"op": "replace", "path": "/spec/mode", "value": "Fast"},
        {"op": "test", "path": "/spec/list/0", "value": "other"},
    )
    assert failed.status == 422
    assert section(widgets.get(name).document, "spec")["mode"] == "Slow"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"mode": "Other"}, "spec.mode"),
        ({"mode": None}, "spec.mode"),
        ({"count": "many"}, "spec.count"),
        ({"count": -1}, "spec.count"),
        ({"machine": "with space"}, "spec.machine"),
        ({"machine": "x" * 21}, "spec.machine"),
        ({"list": [1]}, "spec.list[0]"),
        ({"labels": {"a": 1}}, "spec.labels.a"),
    ],
)
def test_an_object_that_does_not_fit_its_schema_is_invalid(
    widgets: Widgets, spec: Document, field: str
) -> None:
    refused = widgets.client.call("POST", widgets.path, widgets.body(fresh("bad"), spec))
    assert (refused.status, refused.reason) == (422, "Invalid")
    causes = section(refused.document, "details")["causes"]
    assert isinstance(causes, list)
    assert field in {text(cause, "field") for cause in causes if isinstance(cause, dict)}


def test_a_required_field_is_required_of_patches_too(widgets: Widgets) -> None:
    name = fresh("required")
    widgets.make(name)
    refused = widgets.merge(name, {"spec": {"mode": None}})
    assert (refused.status, refused.reason) == (422, "Invalid")
    wrong = widgets.merge(name, {"status": {"phase": 7}}, "status")
    assert (wrong.status, wrong.reason) == (422, "Invalid")


def test_fields_that_the_schema_does_not_know_are_dropped(widgets: Widgets) -> None:
    made = widgets.make(fresh("unknown"), {"stray": {"a": 1}}, other={"a": 1})
    assert section(made.document, "spec") == {"mode": "Fast"}
    assert "other" not in made.document


def test_fields_that_the_schema_does_not_know_are_refused_where_that_is_asked_for(
    widgets: Widgets,
) -> None:
    name = fresh("strict")
    wanted = widgets.body(name, {"stray": 1})
    refused = widgets.client.call("POST", widgets.path, wanted, fieldValidation="Strict")
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert 'unknown field "spec.stray"' in text(refused.document, "message")
    assert widgets.get(name).status == 404


def test_a_deletion_says_what_is_gone_and_then_it_is_not_found(widgets: Widgets) -> None:
    name = fresh("gone")
    made = widgets.make(name)
    answer = widgets.delete(name)
    assert (answer.status, answer.document["status"]) == (200, "Success")
    details = section(answer.document, "details")
    assert (details["name"], details["uid"]) == (name, metadata(made)["uid"])
    for missing in (widgets.get(name), widgets.delete(name), widgets.merge(name, {"spec": {}})):
        assert (missing.status, missing.reason) == (404, "NotFound")
    assert widgets.merge(name, {"status": {}}, "status").status == 404


def test_a_deletion_meant_for_another_object_conflicts(widgets: Widgets) -> None:
    name = fresh("guarded")
    first = widgets.make(name)
    widgets.delete(name)
    second = widgets.make(name)
    guards: tuple[Document, ...] = (
        {"uid": metadata(first)["uid"]},
        {"resourceVersion": first.version},
    )
    for asked in guards:
        refused = widgets.delete(name, {"preconditions": asked})
        assert (refused.status, refused.reason) == (409, "Conflict")
    right: Document = {"uid": metadata(second)["uid"], "resourceVersion": second.version}
    assert widgets.delete(name, {"preconditions": right}).status == 200


def test_finalizers_hold_a_deleted_object_until_they_are_gone(widgets: Widgets) -> None:
    name = fresh("held")
    finalizer = "contract.hostsync.test/held"
    widgets.make(name, metadata={"finalizers": [finalizer]})
    held = widgets.delete(name)
    assert held.status == 200
    assert text(held.document, "metadata", "deletionTimestamp")
    assert widgets.get(name).status == 200
    assert widgets.merge(name, {"metadata": {"finalizers": None}}).status == 200
    assert widgets.get(name).status == 404


def test_a_selection_is_deleted_together(widgets: Widgets) -> None:
    mark, kept = fresh("mark"), fresh("kept")
    for name in (fresh("a"), fresh("b")):
        widgets.make(name, metadata={"labels": {"mark": mark}})
    widgets.make(kept)
    answer = widgets.client.call("DELETE", widgets.path, labelSelector=f"mark={mark}")
    assert answer.status == 200
    assert widgets.client.get(widgets.path, labelSelector=f"mark={mark}").names == []
    assert widgets.get(kept).status == 200
