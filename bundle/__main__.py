"""`python -m bundle`: progress on stderr, the archive's path on stdout, exit 1 when refused."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bundle.assembly import build
from bundle.cache import default_directory
from bundle.errors import BundleError, OptionError
from bundle.options import EPOCH, REPOSITORY, BuildOptions


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Build what `argv` asks for and return the exit status: 0 built, 1 refused."""
    logging.basicConfig(level=logging.INFO, format="bundle: %(message)s")
    try:
        print(build(parse(argv, environment)))
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> BuildOptions:
    """What the command line asks for; raises `OptionError`, or `SystemExit` for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m bundle",
        description="Build hostsync-<version>-linux-<amd64|arm64>.tar.gz, reproducibly.",
    )
    parser.add_argument("--version", metavar="X.Y.Z", help="default: the source tree's own")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="default: %(default)s")
    parser.add_argument(
        "--python", type=Path, metavar="PATH", help="program or prefix; default: the running one"
    )
    parser.add_argument(
        "--keep-tree", type=Path, metavar="DIR", help="also leave the unpacked release in DIR"
    )
    parser.add_argument("--source", type=Path, default=REPOSITORY, help="default: this checkout")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="compile everything anew; default: take what this user compiled before",
    )
    given = parser.parse_args(argv)
    return BuildOptions(
        source=given.source,
        output=given.output,
        version=given.version,
        python=given.python,
        keep_tree=given.keep_tree,
        mtime=_epoch(environment.get("SOURCE_DATE_EPOCH")),
        cache=None if given.no_cache else default_directory(environment),
    )


def _epoch(text: str | None) -> int:
    """The time for all files; ustar has room for 33 bits of seconds."""
    if not text:
        return EPOCH
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 33:
        raise OptionError(
            f"SOURCE_DATE_EPOCH={text} is not a time", remedy="set it to seconds since 1970"
        )
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
