"""Azure Arc: the challenge, and which files it may name."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from credential_shim.arc import ArcSource, read_key, realm_of
from credential_shim.clock import SystemClock
from credential_shim.errors import DeniedError, MalformedError, ShimError
from credential_shim.exchange import Answer, DirectTransport
from credential_shim.identity import Identity, parse_endpoint
from tests.credential_shim.imds_server import Handler, ImdsServer, page, refuse, token_body

KEY = base64.b64encode(b"arc-key").decode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The directory of keys, with one that a challenge may name."""
    directory = tmp_path / "tokens"
    directory.mkdir()
    (directory / "1234.key").write_text(f"{KEY}\n")
    return directory


def challenge(path: Path | str, header: str = "Www-Authenticate") -> Callable[[Handler], None]:
    return lambda handler: handler.reply(401, b"{}", {header: f"Basic realm={path}"})


def grant(handler: Handler) -> None:
    """Answer with a token to whoever has the key."""
    if handler.headers["Authorization"] == f"Basic {KEY}":
        handler.reply(200, token_body(handler, "11111111-system", "server"))
    else:
        refuse(401, "unauthorized")(handler)


def fetch(imds: ImdsServer, keys: Path, *, client_id: str | None = None) -> str:
    identity = Identity(
        login="arc",
        server_id="server",
        selector=None if client_id is None else ("client_id", client_id),
        endpoint=parse_endpoint(imds.url),
    )
    clock = SystemClock()
    source = ArcSource(identity, clock, DirectTransport(clock), key_directory=str(keys))
    return source.fetch(3.0).value


def refusal(imds: ImdsServer, keys: Path) -> ShimError:
    with pytest.raises(ShimError) as caught:
        fetch(imds, keys)
    assert KEY not in caught.value.message
    return caught.value


@pytest.mark.parametrize("header", ["Www-Authenticate", "WWW-Authenticate", "www-authenticate"])
def test_a_challenge_is_answered_with_the_keys_raw_content(
    imds: ImdsServer, keys: Path, header: str
) -> None:
    imds.then(challenge(keys / "1234.key", header), grant)
    assert fetch(imds, keys) == imds.issued(2)
    first, second = imds.seen
    assert first.query == {"api-version": "2020-06-01", "resource": "server"}
    assert first.headers["metadata"] == second.headers["metadata"] == "true"
    assert "authorization" not in first.headers


def test_one_fresh_challenge_is_answered_and_no_third(imds: ImdsServer, keys: Path) -> None:
    file = keys / "1234.key"
    imds.then(challenge(file), challenge(file), grant)
    assert fetch(imds, keys) == imds.issued(3)
    imds.then(*[challenge(file)] * 9)
    assert isinstance(refusal(imds, keys), DeniedError)
    assert len(imds.seen) == 6


@pytest.mark.parametrize(
    "named", ["/etc/shadow", "{keys}/../tokens/1234.key", "{keys}/sub/1234.key", "{keys}/1234.txt",
              "{keys}//1234.key", "1234.key", "{keys}/.key", "{keys}/\u00e9.key"]
)  # fmt: skip
def test_no_other_file_is_ever_read(imds: ImdsServer, keys: Path, named: str) -> None:
    imds.then(challenge(named.format(keys=keys)))
    assert "outside" in refusal(imds, keys).message
    assert len(imds.seen) == 1


def test_links_directories_fifos_and_long_files_are_no_keys(keys: Path) -> None:
    (keys / "link.key").symlink_to(keys / "1234.key")
    (keys / "dir.key").mkdir()
    os.mkfifo(keys / "fifo.key")
    (keys / "long.key").write_text("x" * 4097)
    (keys / "two.key").write_text("a\nb")
    (keys / "empty.key").write_text("\n")
    for name in ("dir", "fifo", "long", "two", "empty"):
        with pytest.raises(MalformedError, match="regular file"):
            read_key(f"{keys}/{name}.key", str(keys))
    with pytest.raises(DeniedError, match="cannot be read"):
        read_key(f"{keys}/link.key", str(keys))
    with pytest.raises(DeniedError, match="bind that directory"):
        read_key(f"{keys}/absent.key", str(keys))


def test_a_directory_that_is_a_link_is_not_followed(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(keys)
    with pytest.raises(DeniedError):
        read_key(f"{tmp_path}/link/1234.key", f"{tmp_path}/link")


@pytest.mark.parametrize("text", ["", "Basic", "Basic realm=", "Bearer realm=/x", "Basic x=/x"])
def test_a_challenge_that_names_no_file_is_none(text: str) -> None:
    with pytest.raises(MalformedError):
        realm_of(Answer(401, {"www-authenticate": text}, b""))


def test_a_selected_identity_has_to_be_confirmed(imds: ImdsServer, keys: Path) -> None:
    def mute(handler: Handler) -> None:
        handler.reply(200, b'{"access_token":"t","expires_in":"60"}')

    imds.then(challenge(keys / "1234.key"), grant)
    assert fetch(imds, keys, client_id="11111111-SYSTEM") == imds.issued(2)
    for answer in (grant, mute):
        imds.then(challenge(keys / "1234.key"), answer)
        with pytest.raises(MalformedError, match="another identity"):
            fetch(imds, keys, client_id="other")


def test_what_is_not_arc_is_said(imds: ImdsServer, keys: Path) -> None:
    imds.then(page(200))
    assert isinstance(refusal(imds, keys), MalformedError)
    imds.then(refuse(403, "forbidden"))
    assert isinstance(refusal(imds, keys), DeniedError)
