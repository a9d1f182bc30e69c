"""What others said, made safe to keep and to show: without secrets, without control characters.

A release under trial logs what it likes, and so do the programs in a machine. Their words end in
the record, in the history and on terminals, so they pass here first. All patterns are linear in
the length of the text: it is hostile, and nobody waits for a regular expression.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,15}://)(?:[^\s/@?#\"']*@)?([^\s?#\"']*)([?#]\S*)?")
_SCHEME = re.compile(r"\b(bearer|basic) +[^\s\"',;]+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(secret|passw(?:or)?d|passphrase|token|authorization|assertion|credential|signature|sig"
    r"|(?:api|access|account|private|shared)[_-]?key)"
    r"([\w-]{0,40}(?:[\"']?\s{0,8}=\s{0,8}|[\"']\s{0,8}:\s{0,8}))"
    r"(\"[^\"]*\"?|'[^']*'?|[^\s,;&]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(secret|passw(?:or)?d|passphrase|authorization) ?: +\S+", re.IGNORECASE)
_OPTION = re.compile(
    r"(--?[\w-]{0,40}?(?:secret|passw(?:or)?d|token|passphrase|key)) +[^\s-]\S*", re.IGNORECASE
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_.-]{8,}")
_LONG_WORD = re.compile(r"[A-Za-z0-9+_~-]{32,}")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def redact(text: str) -> str:
    """The text without what looks like a secret: tokens, passwords, keys, queries of URLs.

    A filter of last resort for text whose author is unknown: it errs towards hiding, keeps
    digests, ids and versions, and promises nothing for a secret that looks like a word.
    """
    text = _URL.sub(_without_query, text)
    text = _SCHEME.sub(rf"\1 {REDACTED}", text)
    text = _ASSIGNED.sub(rf"\1\2{REDACTED}", text)
    text = _HEADER.sub(rf"\1: {REDACTED}", text)
    text = _OPTION.sub(rf"\1 {REDACTED}", text)
    text = _JWT.sub(REDACTED, text)
    return _LONG_WORD.sub(_unless_an_id, text)


def plain(text: str) -> str:
    """The text with every control character but newline and tab spelt out.

    Escape sequences would act on the reader's terminal, direction marks would reorder what is
    read, and lone surrogates cannot be printed at all.
    """
    return _CONTROL.sub(_spelt_out, text.replace("\r\n", "\n"))


def _without_query(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}" + (f"?{REDACTED}" if found[3] else "")


def _unless_an_id(found: re.Match[str]) -> str:
    """Random text has capitals, small letters and digits; digests, ids and names do not."""
    word = found[0]
    kinds = (str.isupper, str.islower, str.isdigit)
    return REDACTED if all(any(map(kind, word)) for kind in kinds) else word


def _spelt_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
