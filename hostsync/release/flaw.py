"""What is wrong with a candidate, said without its path: the door in `candidate` adds that.

The readers beneath the door are pure and know only members and bytes. They raise `Flaw`; the
door turns it into `Refused` while inspecting and into `Failed` while staging, where a flaw
that inspection did not see means that the source has changed since.
"""

from __future__ import annotations

from hostsync.errors import Reason

REBUILD = "build it again from plain files and directories"
KEEP_STILL = "keep the source unchanged until the command has ended"
FETCH_AGAIN = "fetch or copy it again, and compare its SHA-256"
_SHOWN_LIMIT = 120


class Flaw(Exception):
    """A candidate breaks a rule; `why` names member and limit, `remedy` says what to do."""

    def __init__(
        self, why: str, *, remedy: str = REBUILD, reason: Reason = Reason.BAD_CANDIDATE
    ) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy
        self.reason = reason


class Unreadable(Flaw):
    """The kernel refused to open or read what is there."""

    def __init__(self, path: str, error: OSError) -> None:
        cause = error.strerror or type(error).__name__
        remedy = "check that it exists, is readable, and stays in place meanwhile"
        super().__init__(f"{subject(path)} cannot be read: {cause}", remedy=remedy)


def subject(path: str) -> str:
    """A member as a message names it: quoted, ASCII only, of bounded length."""
    if path == "":
        return "it"
    cut = path if len(path) <= _SHOWN_LIMIT else f"{path[:_SHOWN_LIMIT]}..."
    return f"member {cut!a}"
