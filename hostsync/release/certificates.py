"""Which certificate authorities a download trusts: the operator's choice, else the host's.

Facts: OpenSSL has the place of its certificates compiled in, and a release runs on distributions
other than the one it was built on; so the known places are looked at by name. `SSL_CERT_FILE`
and `SSL_CERT_DIR` replace them, as everywhere, and one that cannot be read is an error: falling
back would trust what the operator meant to exclude.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch, Alpine
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL, Azure Linux
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE, SLES
)


class NoAuthoritiesError(Exception):
    """There is no certificate authority to trust; the text says which file is to blame."""


def tls_context(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """A context that verifies the server and its name, TLS 1.2 or newer.

    Raises NoAuthoritiesError when the authorities cannot be read, or when there are none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    file, directory = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    if file or directory:
        _load(context, file, directory)
        return context
    for bundle in SYSTEM_BUNDLES:
        if bundle.is_file():
            _load(context, str(bundle), None)
            return context
    import certifi

    _load(context, certifi.where(), None)
    return context


def _load(context: ssl.SSLContext, file: str | None, directory: str | None) -> None:
    try:
        context.load_verify_locations(cafile=file, capath=directory)
    except (OSError, ValueError) as error:
        where = " and ".join(filter(None, (file, directory)))
        raise NoAuthoritiesError(f"no certificate authority can be read from {where}") from error
    # A directory is looked into at the handshake, so nothing of it is loaded here.
    if file and not context.cert_store_stats()["x509_ca"]:
        raise NoAuthoritiesError(f"{file} holds no certificate authority")
