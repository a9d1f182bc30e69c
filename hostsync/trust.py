"""What the configuration says of releases that come from elsewhere: hosts, keys, versions.

Two tables of the file, `[download]` and `[release]`; `config` puts them into the whole.
"""

from __future__ import annotations

import re

import msgspec

_HOST = re.compile(r"[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]")
_KEY = re.compile(r"RW[A-Za-z0-9+/]{54}|/[^\0]+")


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to believe; the defaults ask for https and a digest, and for no signature.

    `insecure_hosts` may be asked in clear text. With `trusted_keys` (each a minisign public key,
    or the absolute path of a file that holds one) a release must be signed by one of them.
    `allow_downgrade` says whether an order may go to a lower version.
    """

    insecure_hosts: frozenset[str] = frozenset()
    trusted_keys: tuple[str, ...] = ()
    allow_downgrade: bool = True


class DownloadTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The table `[download]`."""

    insecure_hosts: list[str] = []


class ReleaseTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The table `[release]`."""

    trusted_keys: list[str] = []
    allow_downgrade: bool = True


def trust_of(download: DownloadTable, release: ReleaseTable) -> Trust:
    """The two tables as a value; raises ValueError, naming the key, for what makes no sense."""
    for host in download.insecure_hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(
                "download.insecure_hosts must hold hosts in small letters, without scheme and "
                f"port, not {host!r:.80}"
            )
    for number, key in enumerate(release.trusted_keys, 1):
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"release.trusted_keys, entry {number}, must be a minisign public key (RW...) or "
                "an absolute path"
            )
    return Trust(
        insecure_hosts=frozenset(download.insecure_hosts),
        trusted_keys=tuple(release.trusted_keys),
        allow_downgrade=release.allow_downgrade,
    )
