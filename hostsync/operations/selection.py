"""Which machines an operation means: by name, or by a metav1.LabelSelector over Node labels."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One expression of a selector."""

    key: str
    operator: str
    values: list[str] = []


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """A metav1.LabelSelector: all of it must hold; an empty one selects everything."""

    matchLabels: dict[str, str] = {}  # noqa: N815 - the API's word
    matchExpressions: list[Requirement] = []  # noqa: N815


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet the selector; one that Kubernetes would refuse selects nothing."""
    return all(labels.get(key) == value for key, value in selector.matchLabels.items()) and all(
        _meets(each, labels) for each in selector.matchExpressions
    )


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator, requirement.values:
        case "In", [_, *_] as values:
            return value is not None and value in values
        case "NotIn", [_, *_] as values:
            return value is None or value not in values
        case "Exists", []:
            return value is not None
        case "DoesNotExist", []:
            return value is None
    return False
