"""Label and field selectors: parsed once, then asked about each object.

Syntax and answers follow the Kubernetes API: a label that is absent satisfies `!=` and `notin`, a
field that is absent counts as empty, and fields other than an object's name are selectable only
where the kind declares them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from e2e.world.documents import Document, Json, section
from e2e.world.refusals import bad_request

Labels: TypeAlias = Mapping[str, Json]
Term: TypeAlias = Callable[[Labels], bool]

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"{_KEY}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<verb>==|=|!=)\s*(?P<value>{_VALUE})")
_ORDER = re.compile(rf"{_KEY}\s*(?P<verb>[<>])\s*(?P<value>-?[0-9]+)")
_PRESENCE = re.compile(rf"(?P<verb>!?)\s*{_KEY}")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"\s*(?P<path>[^=!,\\\s]+?)\s*(?P<verb>==|!=|=)(?P<value>(?:\\.|[^\\=,])*)")
_COMMA_UNESCAPED = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTerm:
    """One requirement on a field; `path` is dotted."""

    path: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a request selects; the empty selection selects everything."""

    fields: tuple[FieldTerm, ...] = ()
    labels: tuple[Term, ...] = field(default=(), compare=False)

    @property
    def is_everything(self) -> bool:
        """Whether no object is left out."""
        return not (self.fields or self.labels)

    @property
    def pivot(self) -> FieldTerm | None:
        """A field which must have one certain value, by which watches can be looked up."""
        return next((term for term in self.fields if term.equal), None)

    def takes(self, document: Document) -> bool:
        """Tell whether the object is selected."""
        for term in self.fields:
            if (field_of(document, term.path) == term.value) is not term.equal:
                return False
        if not self.labels:
            return True
        labels = section(section(document, "metadata"), "labels")
        return all(term(labels) for term in self.labels)


EVERYTHING = Selection()


def select(fields: str, labels: str, selectable: Iterable[str]) -> Selection:
    """Parse both selectors; raises RefusalError (400) for bad syntax and unsupported fields."""
    return Selection(fields=parse_fields(fields, selectable), labels=parse_labels(labels))


def field_of(document: Document, path: str) -> str:
    """Return a scalar field as text, "" where there is none."""
    value: Json = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case _:
            return ""


def parse_fields(text: str, selectable: Iterable[str]) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector; raises RefusalError (400)."""
    known = frozenset(selectable)
    terms = []
    for part in filter(None, _COMMA_UNESCAPED.split(text)):
        found = _FIELD.fullmatch(part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        if found["path"] not in known:
            raise bad_request(f"field label not supported: {found['path']}")
        value = re.sub(r"\\(.)", r"\1", found["value"])
        terms.append(FieldTerm(path=found["path"], value=value, equal=found["verb"] != "!="))
    return tuple(terms)


def parse_labels(text: str) -> tuple[Term, ...]:
    """Return the terms of a label selector; raises RefusalError (400)."""
    if not text.strip():
        return ()
    return tuple(_label_term(part.strip()) for part in _COMMA_OUTSIDE_PARENTHESES.split(text))


def _label_term(part: str) -> Term:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _member(found["key"], values, wanted=found["verb"] == "in")
    if found := _EQUALITY.fullmatch(part):
        return _member(found["key"], frozenset([found["value"]]), wanted=found["verb"] != "!=")
    if found := _ORDER.fullmatch(part):
        return _ordered(found["key"], int(found["value"]), above=found["verb"] == ">")
    if found := _PRESENCE.fullmatch(part):
        return _present(found["key"], wanted=not found["verb"])
    raise bad_request(f"unable to parse requirement: found '{part}'")


def _member(key: str, values: frozenset[str], *, wanted: bool) -> Term:
    return lambda labels: (labels.get(key) in values) is wanted


def _present(key: str, *, wanted: bool) -> Term:
    return lambda labels: (key in labels) is wanted


def _ordered(key: str, bound: int, *, above: bool) -> Term:
    def holds(labels: Labels) -> bool:
        value = labels.get(key)
        if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]+", value):
            return False
        return int(value) > bound if above else int(value) < bound

    return holds
