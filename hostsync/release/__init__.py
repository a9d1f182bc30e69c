"""Release candidates: fetched or opened, inspected under strict rules, then staged into a slot."""

from hostsync.release.candidate import Candidate, Inspected, open_candidate
from hostsync.release.elf import host_arch
from hostsync.release.source import Form, Given, Opened
from hostsync.release.tree import scan

__all__ = [
    "Candidate",
    "Form",
    "Given",
    "Inspected",
    "Opened",
    "host_arch",
    "open_candidate",
    "scan",
]
