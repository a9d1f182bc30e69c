"""The store: snapshots of the past, what survives a kill, who is woken by what."""

from pathlib import Path

import pytest

from e2e.world import paging
from e2e.world.documents import Document, section, text
from e2e.world.kube import furnish
from e2e.world.persistence import FILE, Journal
from e2e.world.refusals import RefusalError
from e2e.world.registry import Registry
from e2e.world.resources import DEFINITIONS, NODES, Key
from e2e.world.selectors import EVERYTHING, FieldTerm, Selection
from e2e.world.store import Store
from tests.e2e_world.contract.kinds import GROUP, definition

WIDGETS = f"widgets.{GROUP}"


def node(name: str) -> Key:
    return Key(resource=NODES, name=name)


def kept(directory: Path) -> Registry:
    return Registry(Store(journal=Journal(directory)))


def opened(registry: Registry) -> Registry:
    registry.create(Key(resource=DEFINITIONS, name=WIDGETS), definition("widgets", "Widget"))
    return registry


def widget(registry: Registry, name: str) -> Key:
    kind = registry.kind(GROUP, "v1", "widgets")
    assert kind is not None
    return Key(resource=kind, name=name)


def body(name: str, **spec: str) -> Document:
    head: Document = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}}
    return head | {"spec": {"mode": "Fast", **spec}}


def test_a_page_whose_snapshot_is_forgotten_is_expired_but_can_be_gone_on_from() -> None:
    registry = Registry(Store(history=2))
    for name in ("a", "b", "c"):
        registry.create(node(name), {})
    scope = Key(resource=NODES)
    first = paging.read_page(registry.store, scope, EVERYTHING, paging.Wish.of({"limit": "1"}))
    token = text(first, "metadata", "continue")
    for name in ("d", "e", "f"):
        registry.create(node(name), {})
    with pytest.raises(RefusalError) as refused:
        paging.read_page(
            registry.store, scope, EVERYTHING, paging.Wish.of({"limit": "9", "continue": token})
        )
    assert (refused.value.status, refused.value.reason) == (410, "Expired")
    wish = paging.Wish.of({"continue": refused.value.resume})
    rest = paging.read_page(registry.store, scope, EVERYTHING, wish)["items"]
    assert isinstance(rest, list)
    names = [text(each, "metadata", "name") for each in rest if isinstance(each, dict)]
    assert names == ["b", "c", "d", "e", "f"]


def test_a_version_yet_to_come_is_told_so() -> None:
    registry = Registry()
    wish = paging.Wish.of({"resourceVersion": "999999"})
    with pytest.raises(RefusalError, match="Too large resource version") as refused:
        paging.read_page(registry.store, Key(resource=NODES), EVERYTHING, wish)
    assert refused.value.status == 504


def test_objects_and_kinds_survive_a_kill_and_versions_go_on(tmp_path: Path) -> None:
    before = opened(furnish(kept(tmp_path)))
    made = before.create(widget(before, "one"), body("one"))
    before.create(widget(before, "two"), body("two"))
    before.delete(widget(before, "two"))
    last = before.store.version
    # A kill leaves everything as it is: nothing is closed, nothing is said.
    after = furnish(kept(tmp_path))
    assert after.get(widget(after, "one")) == made
    assert after.store.find(widget(after, "two")) is None
    assert after.get(node("kube1")) == before.get(node("kube1"))
    assert after.store.version == last
    with pytest.raises(RefusalError, match="too old resource version"):
        after.store.subscribe(widget(after, ""), EVERYTHING, last - 1)
    again = after.create(widget(after, "two"), body("two"))
    assert int(text(again, "metadata", "resourceVersion")) > last
    before.store.close()
    after.store.close()


def test_a_line_that_the_killed_writer_did_not_finish_is_as_if_never_asked(tmp_path: Path) -> None:
    before = opened(furnish(kept(tmp_path)))
    before.create(widget(before, "one"), body("one"))
    before.store.close()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-5])
    after = kept(tmp_path)
    assert after.store.find(widget(after, "one")) is None
    after.create(widget(after, "one"), body("one"))
    after.store.close()
    third = kept(tmp_path)
    assert section(third.get(widget(third, "one")), "spec") == {"mode": "Fast"}
    third.store.close()


def test_the_last_version_survives_even_where_the_last_change_was_a_deletion(
    tmp_path: Path,
) -> None:
    first = kept(tmp_path)
    first.create(node("a"), {})
    first.delete(node("a"))
    version = first.store.version
    first.store.close()
    for _ in range(2):
        again = kept(tmp_path)
        assert again.store.version == version
        again.store.close()


def test_only_those_who_select_a_changed_object_are_woken() -> None:
    registry = opened(Registry())
    kind = widget(registry, "").resource

    def of(machine: str) -> Selection:
        return Selection(fields=(FieldTerm(path="spec.machine", value=machine),))

    scope = Key(resource=kind)
    watchers = {
        name: registry.store.subscribe(scope, of(name), registry.store.version)
        for name in ("a", "b", "c")
    }
    everyone = registry.store.subscribe(scope, EVERYTHING, registry.store.version)
    registry.create(widget(registry, "one"), body("one", machine="a"))
    registry.change(
        widget(registry, "one"), lambda found: found | {"spec": body("", machine="b")["spec"]}
    )
    woken = {name for name, each in watchers.items() if not each.is_idle}
    assert woken == {"a", "b"}
    assert [line.split(b'"')[3] for line in watchers["a"].lines(0)] == [b"ADDED", b"DELETED"]
    assert [line.split(b'"')[3] for line in watchers["b"].lines(0)] == [b"ADDED"]
    assert [line.split(b'"')[3] for line in everyone.lines(0)] == [b"ADDED", b"MODIFIED"]
