"""A store's objects on disk, so that an API server that was killed still has them.

One line of JSON for each change, written at once: what a killed process wrote stays with the kernel
(only a power cut of the machine below would lose it, which no test survives either). Opening the
journal rewrites it with what is left, so it grows with the changes of one run only.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from e2e.world.documents import Document, section, text
from e2e.world.resources import Key, Resource

# The directory beneath a lab's state.
OBJECTS = "kube-objects"
FILE = "journal.jsonl"


class Journal:
    """The changes of one store, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / FILE
        self._file = self._path.open("ab", buffering=0)

    def load(self) -> tuple[dict[Key, Document], int]:
        """Return the objects and the last version (0 for none), and drop what is outdated.

        A line that was cut off by the writer's death was not yet answered and is left out.
        """
        objects: dict[Key, Document] = {}
        version = 0
        for line in self._path.read_bytes().split(b"\n")[:-1]:
            row = json.loads(line)
            version = row["version"]
            key = _key_of(row)
            if row.get("object") is None:
                objects.pop(key, None)
            else:
                objects[key] = row["object"]
        self._rewrite(objects, version)
        return objects, version

    def note(self, version: int, key: Key, document: Document | None) -> None:
        """Write one change; None for an object that is gone."""
        self._file.write(_line(version, key, document))

    def close(self) -> None:
        """Close the file; nothing is left to write."""
        self._file.close()

    def _rewrite(self, objects: Mapping[Key, Document], version: int) -> None:
        scratch = self._path.with_suffix(".new")
        lines = [_line(version, key, document) for key, document in objects.items()]
        # The version survives even where the last change was a deletion.
        lines.append(_line(version, _NOWHERE, None))
        scratch.write_bytes(b"".join(lines))
        scratch.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)


_NOWHERE = Key(resource=Resource(group="", version="", plural="", kind=""))


def _line(version: int, key: Key, document: Document | None) -> bytes:
    kind = key.resource
    row: Document = {
        "version": version,
        "resource": {
            "group": kind.group,
            "version": kind.version,
            "plural": kind.plural,
            "kind": kind.kind,
        },
        "namespace": key.namespace,
        "name": key.name,
        "object": document,
    }
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _key_of(row: Document) -> Key:
    named = section(row, "resource")
    resource = Resource(
        group=text(named, "group"),
        version=text(named, "version"),
        plural=text(named, "plural"),
        kind=text(named, "kind"),
    )
    return Key(resource=resource, namespace=text(row, "namespace"), name=text(row, "name"))
