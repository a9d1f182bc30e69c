"""The contract of server-side apply: merging, ownership, conflicts, what is no longer applied."""

from e2e.world.documents import Document, Json, section, text
from tests.e2e_world.contract.client import APPLY, OPERATIONS, Answer
from tests.e2e_world.contract.kinds import GROUP, VERSION, Widgets, fresh


def spec(answer: Answer) -> Document:
    """Return the spec of an object that was answered."""
    assert answer.status in (200, 201), answer
    return section(answer.document, "spec")


def targets(answer: Answer) -> dict[str, Document]:
    """Return the entries of `status.targets` by their key, each without it."""
    assert answer.status == 200, answer
    listed = section(answer.document, "status").get("targets", [])
    assert isinstance(listed, list)
    entries = [each for each in listed if isinstance(each, dict)]
    return {
        text(each, "machineRef"): {k: v for k, v in each.items() if k != "machineRef"}
        for each in entries
    }


def entries(**phases: str) -> Document:
    """Return a status with one entry for each machine."""
    listed: list[Json] = [{"machineRef": name, "phase": phase} for name, phase in phases.items()]
    return {"targets": listed}


def causes(answer: Answer) -> set[str]:
    """Return the fields in conflict."""
    assert (answer.status, answer.reason) == (409, "Conflict"), answer
    listed = section(answer.document, "details").get("causes")
    assert isinstance(listed, list)
    found = [each for each in listed if isinstance(each, dict)]
    assert {text(each, "reason") for each in found} == {"FieldManagerConflict"}
    return {text(each, "field") for each in found}


def owners(answer: Answer) -> dict[tuple[str, str, str], Document]:
    """Return what managedFields say, by manager, operation and subresource."""
    listed = section(answer.document, "metadata").get("managedFields")
    assert isinstance(listed, list)
    found = [each for each in listed if isinstance(each, dict)]
    return {
        (text(each, "manager"), text(each, "operation"), text(each, "subresource")): section(
            each, "fieldsV1"
        )
        for each in found
    }


def test_an_apply_must_name_the_object_that_it_makes(widgets: Widgets) -> None:
    head: Document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": widgets.kind}
    path = widgets.at(fresh("nameless"))
    refused = widgets.client.call("PATCH", path, head, APPLY, fieldManager="one")
    assert (refused.status, refused.reason) == (400, "BadRequest")


def test_an_apply_makes_an_object_that_is_not_there(widgets: Widgets) -> None:
    name = fresh("applied")
    made = widgets.apply(name, {"spec": {"mode": "Fast", "machine": "m"}}, "one")
    assert made.status == 201
    assert spec(made) == {"mode": "Fast", "machine": "m"}
    assert owners(made) == {
        ("one", "Apply", ""): {"f:spec": {"f:mode": {}, "f:machine": {}}},
    }
    again = widgets.apply(name, {"spec": {"mode": "Fast", "machine": "m"}}, "one")
    assert (again.status, again.version) == (200, made.version)


def test_an_apply_must_name_its_manager_and_what_it_applies(widgets: Widgets) -> None:
    name = fresh("anonymous")
    config: Document = {"spec": {"mode": "Fast"}}
    assert widgets.apply(name, config, "").status in (400, 422)
    wrong = widgets.apply(name, config | {"kind": "Other"}, "one")
    assert wrong.status >= 400
    assert widgets.apply(name, config | {"metadata": {"name": "x"}}, "one").status == 400
    assert widgets.get(name).status == 404


def test_force_belongs_to_apply_alone(widgets: Widgets) -> None:
    name = fresh("force")
    widgets.make(name)
    content = "application/merge-patch+json"
    refused = widgets.client.call("PATCH", widgets.at(name), {}, content, force="true")
    assert refused.status == 422


def test_two_managers_each_own_their_own_entry_of_a_list_map(widgets: Widgets) -> None:
    name = fresh("targets")
    widgets.make(name)
    assert targets(widgets.apply_status(name, entries(a="On"), "one")) == {"a": {"phase": "On"}}
    both = widgets.apply_status(name, entries(b="Off"), "two")
    assert targets(both) == {"a": {"phase": "On"}, "b": {"phase": "Off"}}
    again = widgets.apply_status(name, entries(a="Done"), "one")
    assert targets(again) == {"a": {"phase": "Done"}, "b": {"phase": "Off"}}
    entry: Document = {".": {}, "f:machineRef": {}, "f:phase": {}}
    assert owners(again)["one", "Apply", "status"] == {
        "f:status": {"f:targets": {'k:{"machineRef":"a"}': entry}}
    }


def test_what_a_manager_no_longer_applies_goes(widgets: Widgets) -> None:
    name = fresh("shrink")
    widgets.make(name)
    widgets.apply_status(name, entries(a="On", b="On"), "one")
    widgets.apply_status(name, entries(c="On"), "two")
    left = widgets.apply_status(name, entries(b="On"), "one")
    assert set(targets(left)) == {"b", "c"}
    alone = fresh("alone")
    widgets.make(alone)
    widgets.apply_status(alone, entries(a="On"), "one")
    emptied = widgets.apply_status(alone, {"message": "hello"}, "one")
    assert emptied.document["status"] == {"message": "hello"}
    status = section(widgets.apply_status(name, {"message": "hello"}, "one").document, "status")
    assert status["message"] == "hello"
    assert set(targets(widgets.get(name))) == {"c"}


def test_what_another_manager_applies_too_stays(widgets: Widgets) -> None:
    name = fresh("shared")
    widgets.apply(name, {"spec": {"mode": "Fast", "machine": "m", "count": 1}}, "one")
    widgets.apply(name, {"spec": {"mode": "Fast", "machine": "m"}}, "two")
    left = widgets.apply(name, {"spec": {"mode": "Fast"}}, "one")
    assert spec(left) == {"mode": "Fast", "machine": "m"}
    assert spec(widgets.apply(name, {"spec": {"mode": "Fast"}}, "two")) == {"mode": "Fast"}


def test_another_managers_field_is_a_conflict_until_it_is_forced(widgets: Widgets) -> None:
    name = fresh("contested")
    widgets.apply(name, {"spec": {"mode": "Fast", "machine": "m", "count": 1}}, "one")
    taken: Document = {"spec": {"mode": "Slow", "count": 1}}
    refused = widgets.apply(name, taken, "two")
    assert causes(refused) == {".spec.mode"}
    assert 'conflict with "one"' in text(refused.document, "message")
    assert spec(widgets.get(name))["mode"] == "Fast"
    forced = widgets.apply(name, taken, "two", force="true")
    assert spec(forced) == {"mode": "Slow", "machine": "m", "count": 1}
    assert owners(forced)["one", "Apply", ""] == {"f:spec": {"f:machine": {}, "f:count": {}}}
    assert causes(widgets.apply(name, {"spec": {"mode": "Fast"}}, "one")) == {".spec.mode"}


def test_another_managers_entry_is_a_conflict_at_its_field(widgets: Widgets) -> None:
    name = fresh("entry")
    widgets.make(name)
    widgets.apply_status(name, entries(a="On"), "one")
    refused = widgets.apply_status(name, entries(a="Off"), "two")
    assert causes(refused) == {'.status.targets[machineRef="a"].phase'}
    same = widgets.apply_status(name, entries(a="On"), "two")
    assert targets(same) == {"a": {"phase": "On"}}


def test_a_field_that_was_patched_belongs_to_who_patched_it(widgets: Widgets) -> None:
    name = fresh("patched")
    widgets.apply(name, {"spec": {"mode": "Fast", "count": 1}}, "one")
    content = "application/merge-patch+json"
    patch: Document = {"spec": {"count": 2}}
    changed = widgets.client.call("PATCH", widgets.at(name), patch, content, fieldManager="hand")
    assert owners(changed)["one", "Apply", ""] == {"f:spec": {"f:mode": {}}}
    assert section(owners(changed)["hand", "Update", ""], "f:spec") == {"f:count": {}}
    refused = widgets.apply(name, {"spec": {"mode": "Fast", "count": 1}}, "one")
    assert causes(refused) == {".spec.count"}
    assert 'conflict with "hand" using contract.hostsync.test/v1' in text(
        refused.document, "message"
    )


def test_an_object_is_owned_by_the_program_that_made_it(widgets: Widgets) -> None:
    made = widgets.make(fresh("made"), {"count": 1})
    owned = section(owners(made)["contract", "Update", ""], "f:spec")
    assert {"f:mode", "f:count"} <= set(owned)


def test_each_endpoint_applies_its_own_part_alone(widgets: Widgets) -> None:
    name = fresh("parts")
    both: Document = {"spec": {"mode": "Fast"}, "status": {"phase": "On"}}
    made = widgets.apply(name, both, "one")
    assert "status" not in made.document
    assert owners(made) == {("one", "Apply", ""): {"f:spec": {"f:mode": {}}}}
    config: Document = {"spec": {"mode": "Slow"}, "metadata": {"labels": {"a": "b"}}}
    config |= {"status": {"phase": "On"}}
    applied = widgets.apply(name, config, "two", part="status")
    assert spec(applied) == {"mode": "Fast"}
    assert applied.document["status"] == {"phase": "On"}
    assert owners(applied)["two", "Apply", "status"] == {"f:status": {"f:phase": {}}}


def test_the_status_of_what_is_not_there_cannot_be_applied(widgets: Widgets) -> None:
    name = fresh("absent")
    assert widgets.apply_status(name, {"phase": "On"}, "one").status == 404
    assert widgets.get(name).status == 404


def test_an_apply_meant_for_another_object_conflicts(widgets: Widgets) -> None:
    name = fresh("twin")
    uid = section(widgets.make(name).document, "metadata")["uid"]
    widgets.delete(name)
    meant: Document = {"metadata": {"name": name, "uid": uid}, "spec": {"mode": "Fast"}}
    gone = widgets.apply(name, meant, "one")
    assert (gone.status, gone.reason) == (409, "Conflict")
    widgets.make(name)
    assert widgets.apply(name, meant, "one", force="true").status == 422


def test_a_patched_status_reaches_whatever_has_the_name_but_not_under_another_version(
    widgets: Widgets,
) -> None:
    name = fresh("heir")
    first = widgets.make(name)
    widgets.delete(name)
    widgets.make(name)
    # A uid is no guard here: metadata is taken from the present object before it is compared.
    uid: Document = {"metadata": {"uid": section(first.document, "metadata")["uid"]}}
    assert widgets.merge(name, uid | {"status": {"phase": "Lost"}}, "status").status == 200
    version: Document = {"metadata": {"resourceVersion": first.version}}
    refused = widgets.merge(name, version | {"status": {"phase": "Off"}}, "status")
    assert (refused.status, refused.reason) == (409, "Conflict")
    config = version | {"status": entries(a="On")}
    refused = widgets.apply(name, config, "one", part="status")
    assert (refused.status, refused.reason) == (409, "Conflict")
    test: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": section(uid, "metadata")["uid"]},
        {"op": "add", "path": "/status", "value": {"phase": "Off"}},
    ]
    path = widgets.at(name, "status")
    assert widgets.client.call("PATCH", path, test, OPERATIONS).status == 422
    whole = first.document | {"status": {"phase": "Off"}}
    put = widgets.client.call("PUT", path, whole)
    assert (put.status, put.reason) == (409, "Conflict")
    assert section(widgets.get(name).document, "status") == {"phase": "Lost"}


def test_an_apply_that_names_a_version_conflicts_with_another(widgets: Widgets) -> None:
    name = fresh("versioned")
    made = widgets.make(name)
    widgets.merge(name, {"status": {"message": "later"}}, "status")
    config: Document = {"metadata": {"resourceVersion": made.version}, "spec": {"mode": "Fast"}}
    refused = widgets.apply(name, config, "one", force="true")
    assert (refused.status, refused.reason) == (409, "Conflict")


def test_a_field_that_the_schema_does_not_know_cannot_be_applied(widgets: Widgets) -> None:
    refused = widgets.apply(fresh("stray"), {"spec": {"mode": "Fast", "stray": 1}}, "one")
    assert refused.status >= 400
    assert "field not declared in schema" in text(refused.document, "message")


def test_an_applied_object_must_fit_its_schema(widgets: Widgets) -> None:
    name = fresh("misfit")
    refused = widgets.apply(name, {"spec": {"mode": "Other"}}, "one")
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert widgets.get(name).status == 404
