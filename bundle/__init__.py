"""Builds hostsync's releases: a directory that runs on any Linux host with a recent glibc.

`build` makes one from the working tree, `repack` derives another from an archive. Nothing here is
part of a release or of the installed package.
"""

from bundle.assembly import build
from bundle.errors import BundleError
from bundle.options import BuildOptions
from bundle.repack import repack

__all__ = ["BuildOptions", "BundleError", "build", "repack"]
