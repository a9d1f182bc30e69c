"""The sources of a release's modules: one archive beside the bytecode that runs.

A file for each source would double the files that every host and machine has to write, digest and
remove at an upgrade, and no process reads them. They are there for people.
"""

import io
import zipfile
from collections.abc import Mapping

from bundle.errors import ArchiveError
from bundle.tree import Entry, Tree

SOURCES = "share/source.zip"
_TIME = (1980, 1, 1, 0, 0, 0)


def pack(sources: Mapping[str, bytes]) -> dict[str, Entry]:
    """The archive of sources by name, the same bytes for the same sources.

    Its members are stored: the release that it is part of is compressed as a whole.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(sources.items()):
            member = zipfile.ZipInfo(name, _TIME)
            member.external_attr = 0o100644 << 16
            archive.writestr(member, content)
    return {SOURCES: Entry(content=out.getvalue())}


def unpack(tree: Tree) -> dict[str, bytes]:
    """The sources in a release by name; raises `ArchiveError`."""
    try:
        with zipfile.ZipFile(io.BytesIO(tree[SOURCES].content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (KeyError, zipfile.BadZipFile) as error:
        raise ArchiveError(
            f"the release has no readable {SOURCES}",
            remedy="name an archive that the builder wrote",
        ) from error
