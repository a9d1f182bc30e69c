"""The one place that says which release this is; the bundle builder rewrites both values."""

VERSION = "0.1.0"
"""Version of this release, PEP 440."""

PROTOCOL = 1
"""Contract between shim, seal and host; raised when an older shim could serve wrong tokens."""
