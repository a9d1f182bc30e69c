"""Archives that tests made themselves are unpacked as they are, by any Python 3.11."""

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack all members; nothing in them is doubted.

    Python 3.11.2, as Debian 12 has it, knows no filters yet; later ones warn without.
    """
    archive.extraction_filter = lambda member, _folder: member
    archive.extractall(folder)
