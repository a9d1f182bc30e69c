"""What an API server refuses, as one error type, and the Status object that tells a client so."""

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.world.documents import Document, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason among several, with the field it is about."""

    reason: str
    message: str
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which object a refusal is about; as in the `details` of a Status."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""


class RefusalError(Exception):
    """A request the API server answers with a Status object.

    `plain` refusals are answered with the message as text, as real servers do where no API is.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        about: About | None = None,
        causes: Sequence[Cause] = (),
        plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.about, self.causes, self.plain = about, tuple(causes), plain
        self.retry_after = 0
        self.resume = ""


def status_object(error: RefusalError) -> Document:
    """Return the Status object that tells a client of a refusal."""
    metadata: Document = {"continue": error.resume} if error.resume else {}
    told: Document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
    }
    details = _details(error)
    return told | {"details": details} if details else told


def _details(error: RefusalError) -> Document:
    details = details_of(error.about or About())
    causes: list[Json] = [_told(each) for each in error.causes]
    if causes:
        details["causes"] = causes
    if error.retry_after:
        details["retryAfterSeconds"] = error.retry_after
    return details


def _told(cause: Cause) -> Document:
    told: Document = {"reason": cause.reason, "message": cause.message}
    return told | ({"field": cause.field} if cause.field else {})


def details_of(about: About) -> Document:
    """Return `about` as the details of a Status, without what is empty."""
    named = {"name": about.name, "group": about.group, "kind": about.kind, "uid": about.uid}
    return {name: value for name, value in named.items() if value}


def bad_request(message: str) -> RefusalError:
    """Return a 400: the request itself makes no sense."""
    return RefusalError(400, "BadRequest", message)


def no_such_path() -> RefusalError:
    """Return the 404 of a path that no API serves, which is not a Status."""
    return RefusalError(404, "NotFound", "404 page not found\n", plain=True)


def expired(message: str) -> RefusalError:
    """Return a 410: what was asked for is no longer known; list again."""
    return RefusalError(410, "Expired", message)


def invalid(kind: str, about: About, causes: Sequence[Cause]) -> RefusalError:
    """Return a 422 with each field at fault; `kind` with its group, as in `Foo.example.org`."""
    told = [f"{each.field}: {each.message}" for each in causes]
    said = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    message = f'{kind} "{about.name}" is invalid: {said}'
    return RefusalError(422, "Invalid", message, about=about, causes=causes)
