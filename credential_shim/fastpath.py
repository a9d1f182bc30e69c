"""Serve a cached credential, or a remembered failure, with ``os`` and ``time`` and no more.

Whatever is not plainly in order here (seals that differ, an entry that is stale, an asker that
was refused) is left to the slow path, which decides and says why.
"""

import os
import time

from credential_shim import entries, seals, stdio
from credential_shim.arguments import Request

_GROUP = "client.authentication.k8s.io/"
_BEGINNINGS = tuple(
    # What client-go sends: a struct marshalled in field order. `spec` may hold more, which is
    # irrelevant here, and any other shape is parsed in full on the slow path.
    (f'{{"kind":"ExecCredential","apiVersion":"{_GROUP}{version}","spec":', version)
    for version in ("v1", "v1beta1")
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class Release:
    """The release this code belongs to, by its directory's physical path."""

    __slots__ = ("directory", "root")

    def __init__(self, directory: str) -> None:
        self.directory: Final = directory
        self.root: Final = directory.rpartition("/")[0]

    @property
    def own_seal(self) -> str:
        """Path of the seal beside this code."""
        return f"{self.directory}/RELEASE"

    @property
    def current_link(self) -> str:
        """Path of the link that names the selected release."""
        return f"{self.root}/current"

    @property
    def current_seal(self) -> str:
        """Path of the seal behind that link."""
        return f"{self.current_link}/RELEASE"

    @property
    def wanted(self) -> str:
        """Path of the seal that the host selects, present in a mirror only."""
        return f"{self.root}/WANTED"


def serve_cached(request: Request, exec_info: str, release: Release) -> bool:
    """Write a fresh cached credential to stdout; False when nothing was written.

    Raises RememberedError, the failure of an earlier run, while that holds and there is no token:
    client-go asks again for each request, and a storm of those must cost as little as success.
    Raises UsageError where the identity's proof is not there.
    """
    version = api_version_at_once(exec_info)
    if version is None or not seals_agree(release):
        return False
    directory = entries.open_directory(request.cache_dir)
    if directory is None:
        return False
    now = time.time()
    key = entries.key_of(request.identity, version)
    entry = entries.load(directory, key)
    if entry is None or not entry.is_usable(now):
        failure = entries.failure(directory, key, now)
        if failure is not None:
            raise failure
        return False
    if not entry.is_fresh(now):
        return False
    if entries.is_rejected(directory, key, entry, now):
        return False
    stdio.write_out(entry.body)
    request.facts["cache"] = "hit"
    return True


def api_version_at_once(exec_info: str) -> str | None:
    """Return the requested version where it can be told without parsing, else None."""
    if not exec_info:
        return "v1"
    return next((version for start, version in _BEGINNINGS if exec_info.startswith(start)), None)


def seals_agree(release: Release) -> bool:
    """Say whether own seal, the seal behind ``current`` and WANTED, if any, are equal and valid."""
    own = seals.read_seal(release.own_seal)
    if isinstance(own, seals.Defect):
        return False
    current = seals.read_seal(release.current_seal)
    if isinstance(current, seals.Defect) or current.raw != own.raw:
        return False
    wanted = seals.read_seal(release.wanted)
    if isinstance(wanted, seals.Defect):
        return wanted.absent
    return wanted.raw == own.raw


def release_of(module_file: str) -> Release:
    """Return the release that holds ``module_file``, a module of this package."""
    # <release>/lib/hostsync/credential_shim/<module>.py
    return Release(os.path.realpath(module_file).rsplit("/", 4)[0])
