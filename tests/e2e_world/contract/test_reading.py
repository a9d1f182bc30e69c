"""The contract of lists: pages of one snapshot, versions, field and label selectors."""

import pytest

from e2e.world.documents import Document, section, text
from tests.e2e_world.contract.client import Answer
from tests.e2e_world.contract.kinds import Widgets, fresh


def pages(widgets: Widgets, limit: int, **query: str) -> list[Answer]:
    """Return the pages of a list."""
    found = [widgets.client.get(widgets.path, limit=str(limit), **query)]
    while token := text(found[-1].document, "metadata", "continue"):
        more = {"limit": str(limit), "continue": token, **query}
        found.append(widgets.client.get(widgets.path, **more))
    return found


def labelled(widgets: Widgets, *names: str, **labels: str) -> str:
    """Make objects that share a mark of their own; return the selector of the mark."""
    mark = fresh("mark")
    for name in names:
        told: Document = {"mark": mark, **labels}
        widgets.make(f"{name}-{mark}", metadata={"labels": told})
    return f"mark={mark}"


def shown(widgets: Widgets, selector: str) -> list[str]:
    """Return the first parts of the names that a label selector finds."""
    answer = widgets.client.get(widgets.path, labelSelector=selector)
    assert answer.status == 200, answer
    return [name.partition("-")[0] for name in answer.names]


def test_pages_together_are_the_list_and_each_has_at_most_the_limit(widgets: Widgets) -> None:
    mark = labelled(widgets, "a", "b", "c", "d", "e")
    found = pages(widgets, 2, labelSelector=mark)
    assert [len(page.items) for page in found] == [2, 2, 1]
    whole = widgets.client.get(widgets.path, labelSelector=mark)
    assert [name for page in found for name in page.names] == whole.names
    assert text(whole.document, "metadata", "continue") == ""


def test_later_pages_show_what_was_there_when_the_first_was_read(widgets: Widgets) -> None:
    mark = labelled(widgets, "a", "b", "c", "d")
    name = mark.removeprefix("mark=")
    first = widgets.client.get(widgets.path, labelSelector=mark, limit="2")
    assert widgets.delete(f"c-{name}").status == 200
    assert widgets.merge(f"d-{name}", {"spec": {"count": 7}}).status == 200
    widgets.make(f"ca-{name}", metadata={"labels": {"mark": name}})
    token = text(first.document, "metadata", "continue")
    query = {"labelSelector": mark, "limit": "5", "continue": token}
    second = widgets.client.get(widgets.path, **query)
    assert second.names == [f"c-{name}", f"d-{name}"]
    assert section(second.items[1], "spec") == {"mode": "Fast"}
    assert second.version == first.version


def test_what_remains_is_counted_where_nothing_is_selected(widgets: Widgets) -> None:
    labelled(widgets, "a", "b", "c")
    whole = widgets.client.get(widgets.path)
    first = widgets.client.get(widgets.path, limit="1")
    assert section(first.document, "metadata")["remainingItemCount"] == len(whole.items) - 1
    selected = widgets.client.get(widgets.path, limit="1", labelSelector="mark")
    assert "remainingItemCount" not in section(selected.document, "metadata")
    assert text(selected.document, "metadata", "continue")


def test_a_token_that_no_server_gave_is_a_bad_request(widgets: Widgets) -> None:
    query = {"continue": "nonsense", "limit": "1"}
    refused = widgets.client.get(widgets.path, **query)
    assert (refused.status, refused.reason) == (400, "BadRequest")


def test_an_unreadable_version_is_refused(widgets: Widgets) -> None:
    refused = widgets.client.get(widgets.path, resourceVersion="yesterday")
    assert refused.status in (400, 422)


def test_a_list_is_of_a_version_and_versions_grow(widgets: Widgets) -> None:
    before = widgets.client.get(widgets.path)
    made = widgets.make(fresh("grow"))
    after = widgets.client.get(widgets.path)
    assert int(before.version) < int(made.version) <= int(after.version)
    assert before.document["kind"] == f"{widgets.kind}List"


def test_a_list_not_older_than_a_version_has_what_that_version_had(widgets: Widgets) -> None:
    made = widgets.make(fresh("not-older"))
    query = {"resourceVersion": made.version, "resourceVersionMatch": "NotOlderThan"}
    found = widgets.client.get(widgets.path, **query)
    assert text(made.document, "metadata", "name") in found.names


def test_a_list_of_exactly_a_version_shows_the_past(widgets: Widgets) -> None:
    name = fresh("past")
    made = widgets.make(name)
    assert widgets.delete(name).status == 200
    query = {"resourceVersion": made.version, "resourceVersionMatch": "Exact"}
    found = widgets.client.get(widgets.path, **query)
    assert name in found.names
    assert found.version == made.version


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", ["a", "b", "none"]),
        ("tier=a", ["a"]),
        ("tier==a", ["a"]),
        ("tier!=a", ["b", "none"]),
        ("tier in (a, b)", ["a", "b"]),
        ("tier notin (a)", ["b", "none"]),
        ("tier", ["a", "b"]),
        ("!tier", ["none"]),
        ("tier,tier notin (b)", ["a"]),
    ],
)
def test_label_selectors_select(widgets: Widgets, selector: str, found: list[str]) -> None:
    mark = fresh("mark")
    for name, labels in (("a", {"tier": "a"}), ("b", {"tier": "b"}), ("none", {})):
        told: Document = {"mark": mark, **labels}
        widgets.make(f"{name}-{mark}", metadata={"labels": told})
    assert shown(widgets, f"mark={mark}" + (f",{selector}" if selector else "")) == found


def test_a_label_selector_that_cannot_be_read_is_a_bad_request(widgets: Widgets) -> None:
    refused = widgets.client.get(widgets.path, labelSelector="a in b")
    assert (refused.status, refused.reason) == (400, "BadRequest")


def test_a_declared_field_selects_and_may_be_required_to_differ(widgets: Widgets) -> None:
    here, there, nowhere = fresh("here"), fresh("there"), fresh("nowhere")
    widgets.make(here, {"machine": here})
    widgets.make(there, {"machine": there})
    widgets.make(nowhere)
    for selector in (f"spec.machine={here}", f"spec.machine=={here}"):
        assert widgets.client.get(widgets.path, fieldSelector=selector).names == [here]
    others = widgets.client.get(widgets.path, fieldSelector=f"spec.machine!={here}").names
    assert {there, nowhere} <= set(others)
    assert here not in others
    unset = widgets.client.get(widgets.path, fieldSelector="spec.machine=").names
    assert nowhere in unset
    assert here not in unset


def test_the_name_selects_always(widgets: Widgets) -> None:
    name = fresh("named")
    widgets.make(name)
    found = widgets.client.get(widgets.path, fieldSelector=f"metadata.name={name}")
    assert found.names == [name]
    both = f"metadata.name={name},spec.machine=elsewhere"
    assert widgets.client.get(widgets.path, fieldSelector=both).names == []


@pytest.mark.parametrize("field", ["spec.mode", "status.phase", "metadata.uid", "spec"])
def test_a_field_that_is_not_declared_is_a_bad_request(widgets: Widgets, field: str) -> None:
    refused = widgets.client.get(widgets.path, fieldSelector=f"{field}=x")
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert f"field label not supported: {field}" in text(refused.document, "message")


def test_a_field_selector_that_cannot_be_read_is_a_bad_request(widgets: Widgets) -> None:
    refused = widgets.client.get(widgets.path, fieldSelector="spec.machine")
    assert (refused.status, refused.reason) == (400, "BadRequest")
