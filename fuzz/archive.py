"""A coverage-guided fuzzer of the archive reader, for `make fuzz`.

    python -m fuzz.archive -max_total_time=60 CORPUS

An input's first byte says what the rest is: bytes as they came, or the archive within, which is
given right header checksums and compressed; else no mutation would come past either. A release
that is read has to be the one that `tarfile` reads; anything but Flaw is a finding.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["hostsync.release"]):
    from tests.hostsync.release.oracle import read, read_by_tarfile

from hostsync.release.flaw import Flaw
from tests.hostsync.release.tarball import bundle, checksummed, directory, file, pax, program, tar

_RAW = b"\0"
_WITHIN = b"\1"
CORPUS = Path(__file__).parent / "corpus"


def archive_of(data: bytes) -> bytes:
    """The archive that an input stands for."""
    if data[:1] != _WITHIN:
        return data[1:]
    blocks = [data[at : at + 512] for at in range(1, len(data), 512)]
    return gzip.compress(b"".join(map(_mended, blocks)), 0, mtime=0)


def _mended(block: bytes) -> bytes:
    is_header = len(block) == 512 and block[257:262] == b"ustar"
    return checksummed(block) if is_header else block


def test_one_input(data: bytes) -> None:
    """Read it; a flaw is an answer, every other exception is a finding."""
    archive = archive_of(data)
    try:
        found = read(archive)
    except Flaw:
        return
    if found != read_by_tarfile(archive):
        raise AssertionError("tarfile reads another release")


def write_seeds(corpus: Path = CORPUS) -> None:
    """Small good and nearly good inputs to begin with."""
    corpus.mkdir(exist_ok=True)
    seeds = {
        "raw": _RAW + bundle(),
        "plain": _WITHIN + tar(directory(""), program(), file("lib/x", b"y" * 600)),
        "pax": _WITHIN + tar(program(), pax(("mtime", "1.5"), ("path", "x")), file("x")),
        "implied": _WITHIN + tar(program(), file("a/b/c/d"), file("a/b/e", b"")),
        "padded": _WITHIN + tar(program(), end=bytes(4096)),
        "empty": _WITHIN + tar(),
    }
    for name, data in seeds.items():
        (corpus / name).write_bytes(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
