"""LabelSelector: the same answer as Kubernetes gives, and nothing for what it would refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.operations.selection import Requirement, Selector, selects
from tests.operations.specimens import PROPERTY

KEYS = st.sampled_from(["ring", "zone", "example.com/role", "a"])
VALUES = st.sampled_from(["", "1", "2", "west"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "in", "Gt", ""])
REQUIREMENTS = st.builds(
    Requirement, key=KEYS, operator=OPERATORS, values=st.lists(VALUES, max_size=3)
)
SELECTORS = st.builds(
    Selector,
    matchLabels=st.dictionaries(KEYS, VALUES, max_size=2),
    matchExpressions=st.lists(REQUIREMENTS, max_size=3),
)


def oracle(selector: Selector, labels: dict[str, str]) -> bool:
    """Kubernetes' own rules, as its documentation states them, by counting what is not met."""
    asked = [("In", key, [value]) for key, value in selector.matchLabels.items()]
    asked += [(each.operator, each.key, each.values) for each in selector.matchExpressions]
    unmet = 0
    for operator, key, values in asked:
        there = {value for label, value in labels.items() if label == key}
        valid = bool(values) if operator in ("In", "NotIn") else not values
        met = {
            "In": bool(there & set(values)),
            "NotIn": not there & set(values),
            "Exists": bool(there),
            "DoesNotExist": not there,
        }.get(operator, False)
        unmet += not (met and valid)
    return unmet == 0


@PROPERTY
@given(SELECTORS, LABELS)
def test_a_selector_selects_what_kubernetes_says_it_does(
    selector: Selector, labels: dict[str, str]
) -> None:
    assert selects(selector, labels) is oracle(selector, labels)


@PROPERTY
@given(SELECTORS, REQUIREMENTS, LABELS)
def test_one_requirement_more_never_selects_more(
    selector: Selector, extra: Requirement, labels: dict[str, str]
) -> None:
    narrower = Selector(
        matchLabels=selector.matchLabels, matchExpressions=[*selector.matchExpressions, extra]
    )
    assert selects(selector, labels) or not selects(narrower, labels)


@PROPERTY
@given(LABELS)
def test_an_empty_selector_selects_everything(labels: dict[str, str]) -> None:
    assert selects(Selector(), labels)


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_an_expression_that_kubernetes_refuses_for_its_lack_of_values_selects_nothing(
    operator: str,
) -> None:
    selector = Selector(matchExpressions=[Requirement(key="ring", operator=operator)])
    assert not selects(selector, {})
    assert not selects(selector, {"ring": "1"})


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist"])
def test_an_expression_with_values_it_must_not_have_selects_nothing(operator: str) -> None:
    expression = Requirement(key="ring", operator=operator, values=["1"])
    selector = Selector(matchExpressions=[expression])
    assert not selects(selector, {})
    assert not selects(selector, {"ring": "1"})


def test_a_label_that_is_absent_is_not_the_same_as_an_empty_one() -> None:
    assert not selects(Selector(matchLabels={"ring": ""}), {})
    assert selects(Selector(matchLabels={"ring": ""}), {"ring": ""})
