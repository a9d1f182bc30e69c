"""What a command loads before it does anything: a node is without its agent for as long."""

from __future__ import annotations

import subprocess
import sys

import pytest

STARTS = (
    "hostsync.activation.trial", "hostsync.cli", "hostsync.daemon", "hostsync.render",
    "hostsync.wiring",
)  # fmt: skip
OTHER_WORK = {
    "dataclasses", "hostsync.operations", "hostsync.release", "httpx", "logging", "random", "ssl",
}  # fmt: skip


@pytest.mark.slow
def test_looking_judging_and_keeping_in_step_load_nothing_for_other_work() -> None:
    code = f"import {', '.join(STARTS)}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded >= set(STARTS)
    assert not loaded & OTHER_WORK
