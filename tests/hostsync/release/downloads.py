"""What the tests of downloads share: an object, certificates, how one fails."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx  # noqa: F401 - imported here, so that no single test pays for it
import pytest
import trustme
from msgspec.structs import replace

from hostsync.errors import FetchCause, FetchError
from hostsync.model import Digest
from hostsync.release.fetch import Means, fetch
from hostsync.release.setback import Terms
from hostsync.release.url import DownloadUrl

BODY = random.Random(1).randbytes(300_000)
DIGEST = Digest(sha256(BODY).hexdigest())
LOCAL = Terms(insecure_hosts=frozenset({"127.0.0.1"}))
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def certified(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def once(means: Means) -> Means:
    return replace(means, terms=replace(means.terms, attempts=1))


def got(url: str, directory: Path, means: Means, digest: Digest = DIGEST) -> bytes:
    """What a download yields, read from its descriptor."""
    with fetch(DownloadUrl.parse(url), digest, directory, means) as opened:
        assert opened.digest == digest
        size = os.fstat(opened.fd).st_size
        assert os.fstat(opened.fd).st_nlink == 0
        assert os.listdir(directory) == []
        return os.pread(opened.fd, size + 1, 0)


@contextmanager
def failing(directory: Path, cause: FetchCause) -> Iterator[Callable[[], FetchError]]:
    """What the body raises has this cause, and nothing is left in the directory."""
    errors: list[FetchError] = []
    with pytest.raises(FetchError) as caught:
        yield lambda: errors[0]
    errors.append(caught.value)
    assert caught.value.cause is cause
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.remedy
    assert os.listdir(directory) == []
