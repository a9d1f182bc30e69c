"""Two hundred callers at once, as after a restart of everything on a node: one request, all served.

Each process has a parent of its own, as each kubectl's plugin has: nobody asks twice.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from credential_shim.errors import UnreachableError
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import Run, SlotRoot
from tests.credential_shim.test_process import Flags, token_of

pytestmark = pytest.mark.slow

CROWD = 200
FAIR_SHARE = 0.6
"""Of the processors' time: with less, others keep the crowd from being served, and not the shim."""


@dataclass(frozen=True)
class Crowd:
    """What came of all runs, and the part of this machine that they got meanwhile."""

    runs: list[Run]
    share: float


def at_once(root: SlotRoot, *words: str) -> Crowd:
    used, began = sum(os.times()[:4]), time.monotonic()
    with ThreadPoolExecutor(CROWD) as pool:
        runs = list(pool.map(lambda _: root.run(*words), range(CROWD)))
    seconds = (time.monotonic() - began) * len(os.sched_getaffinity(0))
    return Crowd(runs=runs, share=(sum(os.times()[:4]) - used) / seconds)


def test_two_hundred_processes_at_once_cost_one_request_and_each_has_the_token(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.script.delay = 0.5
    crowd = at_once(root, "get-token", *flags)
    starved = [each for each in crowd.runs if each.code == UnreachableError.exit_code]
    assert {(each.out, each.err.count("\n")) for each in starved} <= {(b"", 1)}
    served = [token_of(each) for each in crowd.runs if each not in starved]
    assert set(served) <= {imds.issued(number) for number in range(1, len(imds.seen) + 1)}
    if (starved or len(imds.seen) > 1) and crowd.share < FAIR_SHARE:
        pytest.skip(f"the crowd got {crowd.share:.0%} of this machine, which is busy otherwise")
    assert (len(imds.seen), len(served)) == (1, CROWD)
    assert [each.err for each in crowd.runs if each.err] == []
