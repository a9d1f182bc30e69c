"""Transactional agent upgrades for Kubernetes hosts, kept in step with their nspawn machines."""

from hostsync._version import PROTOCOL, VERSION

__all__ = ["PROTOCOL", "VERSION"]
