"""One POST over TLS to an authority: resolved, connected, verified and read within one time.

HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR of the environment are honoured here and
nowhere else.
"""

import os
import socket
import ssl
from collections.abc import Mapping

from credential_shim._version import VERSION
from credential_shim.errors import DeniedError, MalformedError, UnreachableError, UsageError
from credential_shim.exchange import CONNECT_SECONDS, HEAD_LIMIT, Answer, Stream, read_answer
from credential_shim.proxy import Proxy, proxy_for
from credential_shim.resolver import resolve

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep the certificates they trust, beside OpenSSL's own directory of them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from credential_shim.ports import Clock


class TlsTransport:
    """Exchanges over a TLS connection of their own, through a proxy where one is configured."""

    def __init__(self, clock: "Clock", environ: Mapping[str, str], ca_file: str | None) -> None:
        self._clock = clock
        self._environ = environ
        self._ca_file = ca_file

    def post(self, origin: str, path: str, form: bytes, seconds: float) -> Answer:
        """See ``ports.Poster.post``."""
        until = self._clock.monotonic() + seconds
        authority = origin.removeprefix("https://")
        host, _, port = authority.partition(":")
        context = trust(self._ca_file, self._environ)
        head = [
            f"POST {path} HTTP/1.1",
            f"Host: {authority}",
            "Connection: close",
            "Accept: application/json",
            f"User-Agent: hostsync-credential/{VERSION}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(form)}",
        ]
        try:
            connection = self._open(host, int(port or 443), until)
            with connection, self._secure(connection, context, host, until) as secured:
                secured.sendall("\r\n".join([*head, "", ""]).encode("ascii") + form)
                return read_answer(Stream(secured, self._clock, until))
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"the certificate of {host} is not trusted: {error.verify_message}; check ca-file, "
                "SSL_CERT_FILE, the system's certificates and the clock"
            ) from error
        except TimeoutError as error:
            raise UnreachableError(f"{authority} timed out", tries=99) from error
        except OSError as error:
            # An SSLError's text is OpenSSL's own; others are told by number.
            what = getattr(error, "reason", None) or error.strerror or "no route"
            raise UnreachableError(f"{authority} is unreachable: {what}", tries=3) from error

    def _open(self, host: str, port: int, until: float) -> socket.socket:
        proxy = proxy_for(host, port, self._environ)
        if proxy is None:
            return self._connect(host, port, until)
        connection = self._connect(proxy.host, proxy.port, until)
        try:
            self._tunnel(connection, proxy, f"{host}:{port}", until)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, host: str, port: int, until: float) -> socket.socket:
        failure = OSError("no address")
        for family, address in resolve(host, port, self._left(until)):
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                connection.settimeout(min(CONNECT_SECONDS, self._left(until)))
                connection.connect(address)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection
        raise failure

    def _tunnel(self, connection: socket.socket, proxy: Proxy, target: str, until: float) -> None:
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        connection.settimeout(self._left(until))
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        stream = Stream(connection, self._clock, until)
        code = stream.line(HEAD_LIMIT).partition(b" ")[2][:3]
        left = HEAD_LIMIT
        while line := stream.line(left):
            left -= len(line)
            if left <= 0:
                raise MalformedError(f"the answer of proxy {proxy} exceeds {HEAD_LIMIT} bytes")
        if code == b"407":
            raise DeniedError(f"proxy {proxy} wants credentials: put them into HTTPS_PROXY")
        if code != b"200":
            number = code.decode("ascii", "replace")
            said = number if number.isdecimal() else "something that is not HTTP"
            raise UnreachableError(f"proxy {proxy} does not connect: it answered {said}", tries=3)

    def _secure(
        self, connection: socket.socket, context: ssl.SSLContext, host: str, until: float
    ) -> ssl.SSLSocket:
        connection.settimeout(self._left(until))
        return context.wrap_socket(connection, server_hostname=host)

    def _left(self, until: float) -> float:
        left = until - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def trust(ca_file: str | None, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts ``ca_file``, or what the environment says, or the system's.

    OpenSSL's directory, where there is one, is preferred to a bundle: it is read by name, while
    parsing a whole bundle takes longer than the exchange. Raises UsageError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    explicit = ca_file or environ.get("SSL_CERT_FILE") or None
    directory = None if ca_file else environ.get("SSL_CERT_DIR") or None
    if explicit is None and directory is None:
        explicit, directory = _system()
    try:
        context.load_verify_locations(cafile=explicit, capath=directory)
    except OSError as error:
        name = "ca-file" if ca_file else "SSL_CERT_FILE"
        raise UsageError(f"{name}: no certificates can be read from {explicit}") from error
    return context


def _system() -> tuple[str | None, str | None]:
    directory = ssl.get_default_verify_paths().openssl_capath
    try:
        # Certificates are found there by the hash of their name: 01234567.0
        if any(name.endswith(".0") for name in os.listdir(directory)):
            return None, directory
    except OSError:
        pass
    bundle = next((path for path in BUNDLES if os.access(path, os.R_OK)), None)
    if bundle is None:
        raise UsageError(
            "this system has no certificates to trust: install ca-certificates, or name a file "
            "with --ca-file or SSL_CERT_FILE"
        )
    return bundle, None
