"""Objects as values: what a server stores is read, and what it would not store harms nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.operations.operation import Operation, UnreadableError, epoch, rfc3339
from tests.operations.specimens import HOSTILE_TEXTS, PROPERTY, a_document, merged

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), HOSTILE_TEXTS
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(HOSTILE_TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = st.sampled_from(
    [
        ("metadata",), ("metadata", "name"), ("metadata", "uid"), ("metadata", "generation"),
        ("metadata", "resourceVersion"), ("metadata", "creationTimestamp"), ("spec",),
        ("spec", "machineRef"), ("spec", "machineSelector"), ("spec", "operationKind"),
        ("spec", "parameters"), ("spec", "ttlSecondsAfterFinished"), ("status",),
        ("status", "phase"), ("status", "startedAt"), ("status", "completedAt"),
        ("status", "conditions"), ("status", "targets"),
    ]
)  # fmt: skip


def as_stored(**status: object) -> dict[str, Any]:
    document: dict[str, Any] = a_document()
    document["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1}
    return document | {"status": status}


@PROPERTY
@given(ANYTHING)
def test_no_document_raises_anything_but_that_it_is_unreadable(document: object) -> None:
    with pytest.raises(UnreadableError):
        Operation.parse(document)


@PROPERTY
@given(PATHS, ANYTHING)
def test_no_field_of_a_document_raises_anything_but_that_it_is_unreadable(
    path: tuple[str, ...], value: object
) -> None:
    patch = value
    for name in reversed(path):
        patch = {name: patch}
    try:
        read = Operation.parse(merged(as_stored(), patch))
    except UnreadableError:
        return
    assert read.ttl is None or 0 <= read.ttl < 1 << 31
    assert isinstance(read.name + read.uid + read.machine + read.phase + read.started, str)
    epoch(read.completed)
    epoch(read.created)


def test_what_a_later_server_adds_is_passed_over() -> None:
    document = as_stored(phase="Pending", later={"x": 1}, targets=[{"machineRef": "a", "new": 1}])
    document["spec"]["later"] = True
    read = Operation.parse(document)
    assert (read.phase, read.targets[0].machineRef) == ("Pending", "a")


@pytest.mark.parametrize("ttl", [-1, 1 << 31, 10**400, 1.5, "60", True])
def test_a_time_to_live_that_the_definition_excludes_is_unreadable(ttl: object) -> None:
    document = as_stored()
    document["spec"]["ttlSecondsAfterFinished"] = ttl
    with pytest.raises(UnreadableError):
        Operation.parse(document)


@pytest.mark.parametrize("field", ["name", "uid"])
def test_one_that_nobody_could_tell_from_another_is_unreadable(field: str) -> None:
    document = as_stored()
    document["metadata"][field] = ""
    with pytest.raises(UnreadableError):
        Operation.parse(document)


def test_half_a_character_is_unreadable() -> None:
    document = json.loads('{"metadata": {"name": "\\ud800", "uid": "u"}, "spec": {}}')
    with pytest.raises(UnreadableError):
        Operation.parse(document)


def test_times_that_are_null_are_unset() -> None:
    read = Operation.parse(as_stored(startedAt=None, completedAt=None))
    assert (read.started, read.completed) == ("", "")


def test_a_document_read_from_json_is_the_same_operation() -> None:
    document = as_stored(phase="InProgress", message="\u2028")
    assert Operation.parse(json.loads(json.dumps(document))) == Operation.parse(document)


@PROPERTY
@given(st.integers(0, 4_000_000_000))
def test_times_survive_being_written_and_read(seconds: int) -> None:
    assert epoch(rfc3339(seconds)) == seconds
    assert rfc3339(seconds + 0.9) == rfc3339(seconds)


@PROPERTY
@given(st.one_of(HOSTILE_TEXTS, st.datetimes().map(str), st.datetimes().map(lambda d: f"{d}Z")))
def test_a_text_that_is_no_time_is_none(text: str) -> None:
    found = epoch(text)
    assert found is None or isinstance(found, float)


def test_times_outside_of_what_clocks_reach_are_none_or_numbers() -> None:
    for text in ("0001-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert epoch(text) is None or isinstance(epoch(text), float)
