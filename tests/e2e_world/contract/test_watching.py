"""The contract of watches: order, selection, bookmarks, ends, and versions too old."""

import pytest

from e2e.world.documents import Document, section, text
from tests.e2e_world.contract.client import Happening
from tests.e2e_world.contract.conftest import Server
from tests.e2e_world.contract.kinds import Widgets, fresh


def version_now(widgets: Widgets) -> str:
    """Return the version to watch from to hear what comes."""
    return widgets.client.get(widgets.path, limit="1").version


def test_a_watch_from_a_lists_version_misses_nothing_and_repeats_nothing(widgets: Widgets) -> None:
    old, name = fresh("old"), fresh("new")
    widgets.make(old)
    since = version_now(widgets)
    made = widgets.make(name)
    changed = widgets.merge(name, {"spec": {"count": 1}})
    with widgets.client.watch(widgets.path, resourceVersion=since) as events:
        assert widgets.delete(name).status == 200
        seen = [next(events), next(events), next(events)]
    assert [each.what for each in seen] == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]
    assert [each.version for each in seen[:2]] == [made.version, changed.version]
    assert int(seen[2].version) > int(changed.version)
    assert section(seen[2].object, "spec")["count"] == 1


def test_a_watch_hears_what_is_yet_to_come(widgets: Widgets) -> None:
    name = fresh("live")
    with widgets.client.watch(widgets.path, resourceVersion=version_now(widgets)) as events:
        widgets.make(name)
        assert next(events).what == ("ADDED", name)
        widgets.merge(name, {"status": {"phase": "On"}}, "status")
        later = next(events)
    assert later.what == ("MODIFIED", name)
    assert section(later.object, "status") == {"phase": "On"}


@pytest.mark.parametrize("since", ["", "0"])
def test_a_watch_from_no_version_begins_with_what_is_there(widgets: Widgets, since: str) -> None:
    name = fresh("there")
    made = widgets.make(name, {"machine": name})
    query = {"resourceVersion": since} if since else {}
    selector = f"spec.machine={name}"
    with widgets.client.watch(widgets.path, fieldSelector=selector, **query) as events:
        first = next(events)
        assert (first.what, first.version) == (("ADDED", name), made.version)
        widgets.merge(name, {"spec": {"count": 2}})
        assert next(events).what == ("MODIFIED", name)


def test_a_watch_that_selects_a_machine_hears_of_no_other(widgets: Widgets) -> None:
    mine, other = fresh("mine"), fresh("other")
    since = version_now(widgets)
    selector = f"spec.machine={mine}"
    with widgets.client.watch(
        widgets.path, resourceVersion=since, fieldSelector=selector
    ) as events:
        widgets.make(other, {"machine": other})
        widgets.make(mine, {"machine": mine})
        assert next(events).what == ("ADDED", mine)


@pytest.mark.parametrize("way", ["field", "label"])
def test_who_enters_a_selection_is_added_and_who_leaves_it_deleted(
    widgets: Widgets, way: str
) -> None:
    name, mark = fresh("mover"), fresh("mark")
    inside, outside = _places(way, mark)
    widgets.make(name)
    since = version_now(widgets)
    query = {f"{way}Selector": f"spec.machine={mark}" if way == "field" else f"mark={mark}"}
    with widgets.client.watch(widgets.path, resourceVersion=since, **query) as events:
        entered = widgets.merge(name, inside)
        assert _told(next(events)) == ("ADDED", name, entered.version)
        left = widgets.merge(name, outside)
        assert _told(next(events)) == ("DELETED", name, left.version)
        widgets.merge(name, {"spec": {"count": 3}})
        again = widgets.merge(name, inside)
        assert _told(next(events)) == ("ADDED", name, again.version)
        assert widgets.delete(name).status == 200
        assert next(events).what == ("DELETED", name)


def _places(way: str, mark: str) -> tuple[Document, Document]:
    if way == "field":
        return {"spec": {"machine": mark}}, {"spec": {"machine": "elsewhere"}}
    return {"metadata": {"labels": {"mark": mark}}}, {"metadata": {"labels": {"mark": "no"}}}


def _told(event: Happening) -> tuple[str, str, str]:
    return event.type, event.name, event.version


@pytest.mark.slow
def test_a_watch_ends_cleanly_when_its_time_is_over(widgets: Widgets) -> None:
    query = {"resourceVersion": version_now(widgets), "timeoutSeconds": "1"}
    selector = "spec.machine=nobody"
    with widgets.client.watch(widgets.path, fieldSelector=selector, **query) as events:
        assert list(events) == []


@pytest.mark.slow
def test_a_bookmark_carries_a_version_to_go_on_from_and_nothing_else(
    widgets: Widgets, server: Server
) -> None:
    nobody, name = "spec.machine=nobody", fresh("after")
    since = version_now(widgets)
    busy = widgets.make(fresh("busy"))
    query = {
        "resourceVersion": since,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(server.bookmark_seconds),
        "fieldSelector": nobody,
    }
    with widgets.client.watch(widgets.path, **query) as events:
        marks = [each for each in events if each.type == "BOOKMARK"]
    assert marks
    last = marks[-1]
    assert int(last.version) >= int(busy.version)
    assert text(last.object, "kind") == widgets.kind
    assert last.name == ""
    assert "spec" not in last.object
    widgets.make(name)
    with widgets.client.watch(widgets.path, resourceVersion=last.version) as events:
        assert next(events).what == ("ADDED", name)


@pytest.mark.slow
def test_no_bookmark_comes_unasked(widgets: Widgets, server: Server) -> None:
    query = {"resourceVersion": version_now(widgets), "timeoutSeconds": "1"}
    with widgets.client.watch(widgets.path, fieldSelector="spec.machine=nobody", **query) as events:
        assert [each.type for each in events] == []


def test_a_version_too_old_is_an_error_event_within_the_stream(widgets: Widgets) -> None:
    with widgets.client.watch(widgets.path, resourceVersion="1") as events:
        (event,) = list(events)
    assert event.type == "ERROR"
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert event.object["kind"] == "Status"


def test_a_watch_of_an_undeclared_field_is_refused_before_it_begins(widgets: Widgets) -> None:
    refused = widgets.client.get(widgets.path, watch="true", fieldSelector="spec.mode=Fast")
    assert (refused.status, refused.reason) == (400, "BadRequest")


def test_a_write_that_changes_nothing_is_no_event(widgets: Widgets) -> None:
    name = fresh("same")
    made = widgets.make(name)
    with widgets.client.watch(widgets.path, resourceVersion=made.version) as events:
        same = widgets.merge(name, {"spec": {"mode": "Fast"}})
        assert same.version == made.version
        changed = widgets.merge(name, {"spec": {"mode": "Slow"}})
        assert _told(next(events)) == ("MODIFIED", name, changed.version)
