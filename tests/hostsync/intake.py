"""What the tests of intake share: archives of played releases, and hosts that trust as told."""

from __future__ import annotations

import io
import tarfile
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from hostsync.activation.host import Host
from hostsync.model import Digest
from hostsync.release import host_arch
from hostsync.release.url import DownloadUrl
from hostsync.trust import Trust
from tests.hostsync.world import World

LOOPBACK = frozenset({"127.0.0.1"})


def archive_of(world: World, version: str, behaviour: str = "good") -> bytes:
    """The played release as the archive that its makers would publish."""
    source = world.candidate(version, behaviour)
    buffer = io.BytesIO()
    top = f"{world.agent.name}-linux-{host_arch()}"
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(source, top, filter=_of_root)
    return buffer.getvalue()


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def digest_of(data: bytes) -> Digest:
    return Digest(sha256(data).hexdigest())


def trusting(world: World, **trust: object) -> Host:
    """The host, with a configuration that asks for clear text on loopback, keys, or versions."""
    host = world.host()
    wanted = replace(Trust(insecure_hosts=LOOPBACK), **trust)
    return replace(host, config=replace(host.config, trust=wanted))


def url_of(text: str) -> DownloadUrl:
    return DownloadUrl.parse(text)


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
