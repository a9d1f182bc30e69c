"""hostsync's own service assets: units and the drop-in, carried by each release.

While an order is in flight the assets on disk are those of last-good, byte for byte: a broken
unit of a candidate must not be what its roll back runs through. The new ones come after the
verdict; a roll back writes the old ones again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from hostsync.config import Agent, Config
from hostsync.errors import DiskError
from hostsync.ports import Fs

ASSETS_INSIDE = Path("lib/hostsync/hostsync/share")
"""Where a release directory carries them."""

PLACES = {
    "hostsync.service": Path("hostsync.service"),
    "hostsync-judge.service": Path("hostsync-judge.service"),
    "50-hostsync.conf": Path("systemd-nspawn@.service.d/50-hostsync.conf"),
}
"""File in a release → path beneath the unit root."""

ENABLED = ("hostsync.service", "hostsync-judge.service")


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it should stand on disk."""

    path: Path
    content: bytes


def of_release(config: Config, agent: Agent, content: Path) -> tuple[Asset, ...]:
    """The assets that a release brings, rendered for this host's paths.

    Raises DiskError when the release lacks one.
    """
    return tuple(_rendered(config, agent, content))


def converge(fs: Fs, assets: tuple[Asset, ...], *, missing_only: bool = False) -> tuple[Path, ...]:
    """Write the assets that differ (or are missing) and return the paths written.

    The caller reloads systemd when there is any. Raises DiskError.
    """
    written = []
    for asset in assets:
        found = _read(asset.path)
        if found is None or (found != asset.content and not missing_only):
            fs.make_directory(asset.path.parent)
            fs.write(asset.path, asset.content, 0o644)
            written.append(asset.path)
    return tuple(written)


def _rendered(config: Config, agent: Agent, content: Path) -> Iterator[Asset]:
    values = {
        b"@SLOT_ROOT@": bytes(agent.layout.root),
        b"@STATE_ROOT@": bytes(config.state_root),
    }
    for name, place in PLACES.items():
        template = _read(content / ASSETS_INSIDE / name)
        if template is None:
            raise DiskError(f"the release in {content} lacks the service asset {name}")
        for key, value in values.items():
            template = template.replace(key, value)
        yield Asset(path=config.unit_root / place, content=template)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskError(f"cannot read {path}: {error.strerror}") from error
