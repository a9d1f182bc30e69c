"""The sources of a release's modules: one archive beside the bytecode that runs.

A file for each source would double the files that every host and machine has to write, digest and
remove at an upgrade, and no process reads them. They are there for people.
"""

import functools
import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping

from bundle import gzip_member
from bundle.errors import ArchiveError
from bundle.options import EPOCH
from bundle.tree import Entry, Tree

SOURCES = "share/source.tar.gz"


def pack(sources: Mapping[str, bytes]) -> dict[str, Entry]:
    """The archive of sources by name, the same bytes for the same sources.

    It is compressed, though the release is so as a whole: hosts and machines write and digest it
    as it is. Compressed in one, it makes the packed release no larger; by members it would.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.GNU_FORMAT) as archive:
        for name, content in sorted(sources.items()):
            member = tarfile.TarInfo(name)
            member.mtime, member.size = EPOCH, len(content)
            member.uname = member.gname = "root"
            archive.addfile(member, io.BytesIO(content))
    return {SOURCES: Entry(content=b"".join(gzip_member.compress(out.getvalue())))}


def unpack(tree: Tree) -> dict[str, bytes]:
    """The sources in a release by name; raises `ArchiveError`."""
    try:
        return dict(_unpack(tree[SOURCES].content))
    except (KeyError, OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ArchiveError(
            f"the release has no readable {SOURCES}",
            remedy="name an archive that the builder wrote",
        ) from error


@functools.lru_cache(maxsize=1)  # many releases are derived from one
def _unpack(packed: bytes) -> Mapping[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed)), mode="r:") as archive:
        members = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: content.read() for name, content in members if content is not None}
