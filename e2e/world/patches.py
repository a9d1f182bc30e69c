"""RFC 6902 JSON patches; RFC 7386 merge patches are in `documents`."""

from copy import deepcopy

from e2e.world.documents import Document, Json, text
from e2e.world.refusals import RefusalError, bad_request


def apply_operations(target: Document, operations: Json) -> Json:
    """Return `target` with a JSON patch applied; `target` is not changed.

    Raises RefusalError: 400 for what is no JSON patch, 422 where an operation does not fit, such as
    a `test` that fails.
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is an array of operations")
    patched: Json = deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("a JSON patch is an array of operations")
        patched = _operate(patched, operation)
    return patched


def _operate(document: Json, operation: Document) -> Json:
    path = _steps(text(operation, "path"))
    match operation.get("op"):
        case "add":
            return _insert(document, path, _given(operation))
        case "replace":
            return _insert(_without(document, path), path, _given(operation))
        case "remove":
            return _without(document, path)
        case "move":
            origin = _steps(text(operation, "from"))
            return _insert(_without(document, origin), path, _at(document, origin))
        case "copy":
            return _insert(document, path, deepcopy(_at(document, _steps(text(operation, "from")))))
        case "test":
            if _at(document, path) != _given(operation):
                raise _misfit(f"testing value {text(operation, 'path')} failed")
            return document
        case other:
            raise bad_request(f"unknown operation {other!r} in a JSON patch")


def _given(operation: Document) -> Json:
    if "value" not in operation:
        raise bad_request("an operation of the JSON patch lacks its value")
    return deepcopy(operation["value"])


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise bad_request(f"{pointer!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _at(document: Json, path: list[str]) -> Json:
    for step in path:
        match document:
            case dict() if step in document:
                document = document[step]
            case list():
                document = document[_index(document, step)]
            case _:
                raise _misfit(f"no {'/'.join(path)!r} in the object")
    return document


def _insert(document: Json, path: list[str], value: Json) -> Json:
    if not path:
        return value
    match _at(document, path[:-1]), path[-1]:
        case dict() as parent, name:
            parent[name] = value
        case list() as parent, "-":
            parent.append(value)
        case list() as parent, step:
            parent.insert(_index(parent, step, room=1), value)
        case _:
            raise _misfit(f"no {'/'.join(path)!r} in the object")
    return document


def _without(document: Json, path: list[str]) -> Json:
    if not path:
        return None
    match _at(document, path[:-1]), path[-1]:
        case dict() as parent, name if name in parent:
            del parent[name]
        case list() as parent, step:
            del parent[_index(parent, step)]
        case _:
            raise _misfit(f"no {'/'.join(path)!r} in the object")
    return document


def _index(items: list[Json], step: str, room: int = 0) -> int:
    if not step.isdecimal() or int(step) >= len(items) + room:
        raise _misfit(f"no index {step!r} in a list of {len(items)}")
    return int(step)


def _misfit(message: str) -> RefusalError:
    return RefusalError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}"
    )
