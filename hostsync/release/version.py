"""Which of two versions is lower: enough of PEP 440 and of semantic versioning for agents.

    1.2 == 1.2.0 == v1.2.0+build      1.0.dev1 < 1.0a1 < 1.0-alpha.2 < 1.0rc1 < 1.0 < 1.0.post1

What both call a pre-release is one here, ordered by stage (development, alpha, beta, candidate) and
number; semantic versioning's other words come before them all, compared as it says. A version
that is of neither kind is not compared, and the caller has to refuse.
"""

from __future__ import annotations

import re

_VERSION = re.compile(
    r"v?(?P<numbers>[0-9]{1,18}(?:\.[0-9]{1,18}){0,5})(?P<rest>[A-Za-z0-9.~_-]*)(?:\+[A-Za-z0-9.-]+)?"
)
_STAGED = re.compile(
    r"(?:[._-]?(?P<stage>dev|alpha|a|beta|b|preview|pre|rc|c)[._-]?(?P<number>[0-9]{0,18}))?"
    r"(?:[._-]?post[._-]?(?P<post>[0-9]{0,18}))?(?:[._-]?dev[._-]?(?P<dev>[0-9]{0,18}))?",
    re.IGNORECASE,
)
_WORDS = re.compile(r"-(?P<words>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)")
_STAGES = {
    "dev": 1, "a": 2, "alpha": 2, "b": 3, "beta": 3, "c": 4, "rc": 4, "pre": 4, "preview": 4,
}  # fmt: skip
_OTHER_WORDS, _FINAL, _NO_DEV = 0, 5, 1 << 62

_Words = tuple[tuple[int, int, str], ...]
_Key = tuple[tuple[int, ...], int, _Words, int, int, int]


def is_lower(version: str, than: str) -> bool:
    """Whether `version` comes before `than`; raises ValueError naming one that has no order."""
    return _key(version) < _key(than)


def _key(version: str) -> _Key:
    match = _VERSION.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r:.80} is no version with an order")
    numbers = tuple(map(int, match["numbers"].split(".")))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    rest = match["rest"]
    if staged := _STAGED.fullmatch(rest):
        stage = _STAGES[staged["stage"].lower()] if staged["stage"] else _FINAL
        post = int(staged["post"] or 0) + 1 if staged["post"] is not None else 0
        dev = int(staged["dev"] or 0) if staged["dev"] is not None else _NO_DEV
        return numbers, stage, (), int(staged["number"] or 0), post, dev
    if words := _WORDS.fullmatch(rest):
        return numbers, _OTHER_WORDS, tuple(map(_word, words["words"].split("."))), 0, 0, 0
    raise ValueError(f"{version!r:.80} is no version with an order")


def _word(text: str) -> tuple[int, int, str]:
    """Numbers come before words and are compared as numbers (Semantic Versioning 2.0.0, 11)."""
    return (0, int(text), "") if text.isdigit() and len(text) < 19 else (1, 0, text)
