"""Release candidates: a local path is inspected under strict rules, then staged into a slot."""

from hostsync.release.candidate import Candidate, Inspected, open_candidate
from hostsync.release.elf import host_arch
from hostsync.release.source import Form
from hostsync.release.tree import scan

__all__ = ["Candidate", "Form", "Inspected", "host_arch", "open_candidate", "scan"]
