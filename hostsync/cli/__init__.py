"""The command line: parses, takes the lock, calls the core, prints, returns an exit status."""

from hostsync.cli.main import entry, main

__all__ = ["entry", "main"]
