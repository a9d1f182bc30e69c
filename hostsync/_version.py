"""The one place that says which release this is."""

VERSION = "0.1.0"
"""Version of this release, PEP 440; a bundle may be built with another one."""

PROTOCOL = 1
"""Contract between shim, seal and host; raised when an older shim could serve wrong tokens."""
