from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from hostsync.errors import Refused
from hostsync.fs import Disk
from hostsync.model import SlotKind
from hostsync.release import Inspected, open_candidate
from hostsync.release.fetch import Means
from tests.hostsync.release.downloads import LOCAL, PROXIES, certified
from tests.hostsync.release.tarball import AGENT, RELEASE, TOP, Tree, tree_archive
from tests.hostsync.world import Time

Refusal = Callable[..., Refused]


def everything(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every object beneath `root` with its mode and content, for comparing before and after."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = path.readlink() if path.is_symlink() else path
        text = path.read_bytes() if path.is_file() and not path.is_symlink() else str(content)
        found[str(path.relative_to(root))] = (mode, text)
    return found


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the release is to be staged: nothing is there, its parent is."""
    slots = tmp_path / "slots"
    slots.mkdir()
    return slots / "blue"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The small good release as a directory."""
    top = tmp_path / "unpacked"
    write_tree(top)
    return top


def write_tree(top: Path, tree: Tree = RELEASE) -> None:
    top.mkdir()
    for path, (mode, data) in tree.items():
        if data is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(data)
        (top / path).chmod(mode)


def inspected(path: Path, kind: SlotKind = SlotKind.BUNDLE) -> Inspected:
    with open_candidate(path, agent=AGENT, kind=kind) as candidate:
        return candidate.inspect()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / f"{TOP}.tar.gz"
    path.write_bytes(tree_archive())
    return path


@pytest.fixture(params=["archive", "directory"])
def source(request: pytest.FixtureRequest, archive: Path, unpacked: Path) -> Path:
    """The same release in either form of a bundle."""
    return archive if request.param == "archive" else unpacked


@pytest.fixture
def refusal(tmp_path: Path) -> Refusal:
    """Offer the bytes as a candidate; the refusal, which named the path and changed nothing.

    It is the same whether the candidate is only looked at or unpacked.
    """

    def offer(data: bytes, kind: SlotKind = SlotKind.BUNDLE) -> Refused:
        path = tmp_path / "candidate.tar.gz"
        path.write_bytes(data)
        before = everything(tmp_path)
        with pytest.raises(Refused) as looked:
            inspected(path, kind)
        with (
            pytest.raises(Refused) as caught,
            open_candidate(path, agent=AGENT, kind=kind) as candidate,
        ):
            candidate.unpack(tmp_path / "blue", Disk())
        assert everything(tmp_path) == before
        assert str(looked.value) == str(caught.value)
        assert caught.value.brief.startswith(f"{path}: ")
        assert caught.value.remedy
        return caught.value

    return offer


@pytest.fixture(autouse=True)
def no_proxy_and_no_authority_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> ssl.SSLContext:
    """A server's certificate for `localhost` and 127.0.0.1, trusted through SSL_CERT_FILE."""
    bundle = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return certified(authority, "localhost", "127.0.0.1")


@pytest.fixture
def means() -> Means:
    return Means(fs=Disk(), clock=Time(), terms=LOCAL, jitter=lambda: 0.5)
