"""Many generated archives, each taken from its first byte to its slot, or refused.

    python -m fuzz.cases --cases 1000000

Every case is offered as `upgrade` offers it: opened, inspected, staged. What must hold for each
stands in `Sandbox.try_case`; the first breach ends the run with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from random import Random

from fuzz.making import Case, make
from hostsync.errors import Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind
from hostsync.release import Opened, open_candidate
from tests.hostsync.release.oracle import read, read_by_tarfile
from tests.hostsync.release.tarball import AGENT

_CHUNK = 2000
_TEXT_LIMIT = 4000
_LOOKED_AROUND = 50
"""After every so many cases, and after the last, the directory around the slot is looked at."""


class BreachError(Exception):
    """Something happened that must not; the text says what, and how to make it again."""


class Sandbox:
    """A slot in a directory of its own, beside a file that nobody may touch."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._slots = top / "slots"
        self._slots.mkdir()
        self._witness = top / "witness"
        self._witness.write_bytes(b"as it was")
        self._disk = Disk()

    def try_case(self, case: Case) -> str:
        """How the case ended; raises BreachError unless all of this holds.

        It is staged exactly if the oracle finds nothing wrong, and then holds what an independent
        reader finds; a refusal leaves nothing and says why in printable ASCII of bounded length.
        Nothing but the slot comes or goes.
        """
        with _opened(case.data) as opened:
            try:
                with open_candidate(opened, agent=AGENT, kind=SlotKind.BUNDLE) as candidate:
                    candidate.stage(self._slots / "blue", self._disk)
                    self._check_staged(case)
                    ended = "staged"
            except Refused as refusal:
                _check_text(refusal)
                _claim(case.is_good is not True, "a good archive was refused")
                _claim(os.listdir(self._slots) == [], "a refusal left something behind")
                ended = "refused"
        return ended

    def _check_staged(self, case: Case) -> None:
        _claim(case.is_good is not False, "a bad archive was staged")
        _claim(os.listdir(self._slots) == ["blue"], "something lies beside the slot")
        slot = self._slots / "blue"
        found = dict(_found(str(slot), ""))
        _claim(found == read_by_tarfile(case.data), "another reader finds another release")
        if case.of_old:
            _claim(found == _whole(case.of_old), "damage changed the release")
        shutil.rmtree(slot)

    def check_surroundings(self, descriptors: int) -> None:
        """Raise BreachError if anything was written beside the slot, or a descriptor is open."""
        _claim(
            sorted(os.listdir(self._top)) == ["slots", "witness"], "something was written beside"
        )
        _claim(self._witness.read_bytes() == b"as it was", "the witness was touched")
        _claim(len(os.listdir("/proc/self/fd")) == descriptors, "a descriptor was left open")


def _found(directory: str, above: str) -> Iterator[tuple[str, bytes | None]]:
    """What was installed, by name; a link, or a mode that the archive chose, is a breach."""
    for entry in os.scandir(directory):
        name, status = f"{above}{entry.name}", entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            yield name, None
            yield from _found(entry.path, f"{name}/")
        else:
            _claim(stat.S_ISREG(status.st_mode), "a link or a special file was installed")
            yield name, Path(entry.path).read_bytes()
        mode = stat.S_IMODE(status.st_mode)
        _claim(mode in {0o644, 0o755}, "a mode was taken from the archive")


@cache
def _whole(plain: bytes) -> dict[str, bytes | None]:
    return read(gzip.compress(plain))


@contextmanager
def _opened(data: bytes) -> Iterator[Opened]:
    fd = os.memfd_create("case")
    try:
        os.write(fd, data)
        yield Opened(fd=fd, label="case")
    finally:
        os.close(fd)


def _claim(holds: bool, breach: str) -> None:
    if not holds:
        raise BreachError(breach)


def _check_text(refusal: Refused) -> None:
    text = str(refusal)
    is_plain = text.isascii() and text.isprintable()
    _claim(is_plain and len(text) < _TEXT_LIMIT, "a refusal repeats bytes of the archive")
    _claim(bool(refusal.remedy), "a refusal without a remedy")


def run_chunk(seed: int, number: int, cases: int) -> Counter[str]:
    """Cases of one chunk, by kind and end; raises BreachError."""
    random, ends = Random(f"{seed}/{number}"), Counter[str]()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a fast disk
    with tempfile.TemporaryDirectory(prefix="hostsync-cases-", dir=memory) as directory:
        sandbox = Sandbox(Path(directory))
        descriptors = len(os.listdir("/proc/self/fd"))
        for index in range(cases):
            case = make(random)
            try:
                ends[f"{case.kind:8} {sandbox.try_case(case)}"] += 1
                if index % _LOOKED_AROUND == 0 or index == cases - 1:
                    sandbox.check_surroundings(descriptors)
            except Exception as error:
                again = f"seed {seed}, chunk {number}, case {index} ({case.kind})"
                raise BreachError(f"{error!r}: {again}: {case.data.hex()}") from error
    return ends


def _give_way() -> None:
    """Leave the processors to whoever wants them."""
    with suppress(OSError):
        os.nice(max(0, 15 - os.nice(0)))


def main() -> int:
    """Run them all and print the counts; the exit status is 1 after a breach."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    started, ends = time.monotonic(), Counter[str]()
    chunks = -(-options.cases // _CHUNK)
    sizes = [min(_CHUNK, options.cases - number * _CHUNK) for number in range(chunks)]
    with ProcessPoolExecutor(options.workers, initializer=_give_way) as pool:
        try:
            for counts in pool.map(partial(run_chunk, options.seed), range(chunks), sizes):
                ends += counts
        except BreachError as breach:
            pool.shutdown(cancel_futures=True)
            print(f"BREACH: {breach}", file=sys.stderr)
            return 1
    for name, count in sorted(ends.items()):
        print(f"{count:>9}  {name}")
    took = time.monotonic() - started
    print(f"{ends.total():>9}  cases, no breach, {took:.0f} s, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
