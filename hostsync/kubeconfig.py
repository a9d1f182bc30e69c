"""kubelet's kubeconfig whose user is the credential plugin.

Rules of client-go that it keeps: the command is absolute, because kubelet's PATH is nobody's
promise; `interactiveMode: Never`, because kubelet has no terminal; and beside `exec` there is no
token and no client certificate, either of which would be used without asking the plugin.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import stat
from pathlib import Path

import msgspec

from hostsync.errors import ConfigError, DiskError
from hostsync.ports import Fs

MODE = 0o600
_SIZE_LIMIT = 1024 * 1024
_SERVER = re.compile(r"https://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[\w./~-]*)?", re.A)
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s(.+?)-----END \1-----", re.DOTALL)
_SECRET_FLAGS = ("--client-secret", "--client-certificate-password", "--password")


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says: the API server, its authority (PEM), the plugin and its arguments."""

    server: str
    authority: bytes
    command: Path
    arguments: tuple[str, ...]

    def render(self) -> bytes:
        """Return the file's bytes: JSON, which is YAML to every reader of a kubeconfig.

        Raises ConfigError for what kubelet could not use, or what must not stand in a file.
        """
        _require_usable(self)
        data = base64.b64encode(_certificates(self.authority)).decode()
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(self.command),
            "args": ["get-token", *self.arguments],
            "interactiveMode": "Never",
            "provideClusterInfo": False,
        }
        cluster = {"server": self.server, "certificate-authority-data": data}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "kubelet", "user": {"exec": plugin}}],
            "contexts": [{"name": "kubelet", "context": {"cluster": "cluster", "user": "kubelet"}}],
            "current-context": "kubelet",
        }
        return f"{json.dumps(document, indent=2)}\n".encode()


def put(fs: Fs, path: Path, content: bytes, *, replace: bool) -> bool:
    """Have `path` hold `content` for its owner alone; False when it does already.

    Atomic. Raises ConfigError where another file stands and `replace` is not set, or something
    that is no regular file; DiskError as the disk does.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        fs.write(path, content, MODE)
        return True
    except OSError as error:
        raise DiskError(f"cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is not a regular file", remedy="move it aside")
    same = found.st_size == len(content) and path.read_bytes() == content
    if same and stat.S_IMODE(found.st_mode) == MODE:
        return False
    if not same and not replace:
        raise ConfigError(f"{path} is another kubeconfig", remedy="use --replace to replace it")
    fs.write(path, content, MODE)
    return True


def read_authority(path: Path) -> bytes:
    """Return the content of a file of certificates; raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(_SIZE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _SIZE_LIMIT:
        raise ConfigError(f"{path} is longer than {_SIZE_LIMIT} bytes")
    return content


def _require_usable(kubeconfig: Kubeconfig) -> None:
    if not _SERVER.fullmatch(kubeconfig.server):
        raise ConfigError("the server is not https://HOST[:PORT][/PATH]")
    if not kubeconfig.command.is_absolute():
        raise ConfigError(f"the plugin's command {kubeconfig.command} is not absolute")
    for word in kubeconfig.arguments:
        if word.partition("=")[0] in _SECRET_FLAGS:
            raise ConfigError(
                "a secret may not stand in a kubeconfig",
                remedy="put it into a file and use --client-secret-file",
            )
        if not word or not word.isascii() or not word.isprintable():
            raise ConfigError("an argument of the plugin is empty or not printable ASCII")


def _certificates(pem: bytes) -> bytes:
    """The certificates of a PEM file and nothing else, least of all a private key."""
    blocks = list(_PEM.finditer(pem))
    kinds = {block[1] for block in blocks}
    if kinds != {b"CERTIFICATE"}:
        raise ConfigError("the authority's file holds no certificate, or not certificates alone")
    try:
        for block in blocks:
            base64.b64decode(b"".join(block[2].split()), validate=True)
    except binascii.Error as error:
        raise ConfigError("a certificate of the authority's file is damaged") from error
    return b"".join(block[0] + b"\n" for block in blocks)
