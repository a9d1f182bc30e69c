"""A thin client of the Kubernetes API: what goes over the wire is what the test says."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from e2e.ground import find_kubectl
from e2e.world.documents import Document, Json, decode, section, text

JSON = "application/json"
MERGE = "application/merge-patch+json"
OPERATIONS = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
CALL_SECONDS = 120.0
WATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said; `document` is {} where it was no JSON object."""

    status: int
    document: Document
    content_type: str
    retry_after: str = ""

    @property
    def version(self) -> str:
        """The resourceVersion of the object or list."""
        return text(self.document, "metadata", "resourceVersion")

    @property
    def reason(self) -> str:
        """The reason of a Status."""
        return text(self.document, "reason")

    @property
    def names(self) -> list[str]:
        """The names of a list's items, in its order."""
        return [text(each, "metadata", "name") for each in self.items]

    @property
    def items(self) -> list[Document]:
        """A list's items."""
        listed = self.document.get("items")
        return (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event of a watch."""

    type: str
    object: Document

    @property
    def name(self) -> str:
        """The object's name."""
        return text(self.object, "metadata", "name")

    @property
    def version(self) -> str:
        """The object's resourceVersion."""
        return text(self.object, "metadata", "resourceVersion")

    @property
    def what(self) -> tuple[str, str]:
        """The type and the name."""
        return self.type, self.name


class Client:
    """Speaks to the server that a kubeconfig names, with its token or client certificate.

    Another `token` may be given in the place of the kubeconfig's; "" shows none.
    """

    def __init__(self, kubeconfig: Path, token: str | None = None) -> None:
        told = _read(kubeconfig)
        cluster, user = _first(told, "clusters", "cluster"), _first(told, "users", "user")
        self._address = urlsplit(text(cluster, "server"))
        self._name = text(cluster, "tls-server-name") or self._address.hostname or ""
        self._tls = _context(cluster, user)
        self._headers = {"User-Agent": "contract/1"}
        shown_token = text(user, "token") if token is None else token
        if shown_token:
            self._headers["Authorization"] = f"Bearer {shown_token}"

    def show_certificate(self, pem: Path) -> None:
        """Show this client certificate from now on."""
        self._tls.load_cert_chain(pem)

    def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        content: str = JSON,
        **query: str,
    ) -> Answer:
        """Make one request."""
        raw = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content} if raw is not None else {})
        with closing(self._connect(CALL_SECONDS)) as line:
            line.request(method, _with(path, query), raw, headers)
            response = line.getresponse()
            data = response.read()
        kind = response.headers.get_content_type()
        document = decode(data) if kind == JSON else {}
        return Answer(
            status=response.status,
            document=document,
            content_type=kind,
            retry_after=response.headers.get("Retry-After", ""),
        )

    def get(self, path: str, **query: str) -> Answer:
        """Read an object or a list."""
        return self.call("GET", path, **query)

    @contextmanager
    def watch(self, path: str, **query: str) -> Iterator[Iterator[Happening]]:
        """Open a watch, which the server has begun when this returns, and yield its events.

        The events end where the server ends them; an answer other than 200 raises.
        """
        with closing(self._connect(WATCH_SECONDS)) as line:
            line.request("GET", _with(path, {"watch": "true", **query}), headers=self._headers)
            response = line.getresponse()
            if response.status != 200:
                raise http.client.HTTPException(f"{response.status} {response.read()!r}")
            with closing(response):
                yield (_happening(decode(each)) for each in _lines(response))

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port or 443
        line = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls)
        if self._name != host:
            # The certificate is for another name than the address.
            bare = socket.create_connection((host, port), seconds)
            line.sock = self._tls.wrap_socket(bare, server_hostname=self._name)
        return line


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield whole lines; raises IncompleteRead where the stream is cut, unlike its own iterator."""
    rest = b""
    while data := response.read1():
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    assert rest == b"", "the stream ended within a line"


def _read(kubeconfig: Path) -> Document:
    """Return a kubeconfig with one cluster and one user, and the content of all files it names."""
    raw = kubeconfig.read_bytes()
    if raw.startswith(b"{"):
        return decode(raw)
    # kubectl reads what a kubeconfig may be: YAML, with several contexts and files of its own.
    view = ("config", "view", "--raw", "--minify", "--flatten", "--output=json")
    command = [str(find_kubectl()), *view, f"--kubeconfig={kubeconfig}"]
    return decode(subprocess.run(command, check=True, capture_output=True).stdout)


def _happening(line: Document) -> Happening:
    return Happening(type=text(line, "type"), object=section(line, "object"))


def _with(path: str, query: dict[str, str]) -> str:
    # A name that is a word of Python is given with an underscore behind it.
    named = {name.rstrip("_"): value for name, value in query.items()}
    return f"{path}?{urlencode(named)}" if named else path


def _first(told: Document, many: str, one: str) -> Document:
    listed = told.get(many)
    first = listed[0] if isinstance(listed, list) else None
    return section(first, one) if isinstance(first, dict) else {}


def _context(cluster: Document, user: Document) -> ssl.SSLContext:
    authority = base64.b64decode(text(cluster, "certificate-authority-data")).decode()
    context = ssl.create_default_context(cadata=authority or None)
    certificate = base64.b64decode(text(user, "client-certificate-data"))
    if certificate:
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(certificate + b"\n" + base64.b64decode(text(user, "client-key-data")))
            pem.flush()
            context.load_cert_chain(pem.name)
    return context
