"""`python -m hostsync`."""

from hostsync.cli import entry

entry()
