"""The one place that says which release this is; the bundle builder writes it anew."""

VERSION = "0.1.0"
PROTOCOL = 1
