"""What `upgrade` does before it asks a candidate anything, alone in a process to be measured.

python -m benchmarks.take URL SHA256 KIND DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import cast

# httpx imports these where a development environment has them; no release has.
sys.modules["pygments"] = sys.modules["rich"] = cast("ModuleType", None)

from hostsync.clock import SystemClock  # noqa: E402 - after what must not be imported
from hostsync.fs import Disk  # noqa: E402
from hostsync.model import Digest, SlotKind  # noqa: E402
from hostsync.release import open_candidate  # noqa: E402
from hostsync.release.fetch import Means, fetch  # noqa: E402
from hostsync.release.setback import Terms  # noqa: E402
from hostsync.release.url import DownloadUrl  # noqa: E402

AGENTS = {SlotKind.FILE: "aks-flex-node", SlotKind.BUNDLE: "hostsync"}


def take(url: str, digest: str, kind: SlotKind, directory: Path) -> None:
    """Fetch, judge, unpack, and make durable."""
    terms = Terms(insecure_hosts=frozenset({"127.0.0.1"}))
    means = Means(fs=Disk(), clock=SystemClock(), terms=terms)
    with (
        fetch(DownloadUrl.parse(url), Digest(digest), directory, means) as opened,
        open_candidate(opened, agent=AGENTS[kind], kind=kind) as candidate,
    ):
        candidate.stage(directory / "slot", Disk())


if __name__ == "__main__":
    _, url, digest, kind, directory = sys.argv
    take(url, digest, SlotKind(kind), Path(directory))
