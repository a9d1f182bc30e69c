"""The exec plugin: run as client-go runs it, bounded, and what it printed is never repeated."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from hostsync.errors import ClusterCause, ClusterError
from hostsync.operations.plugin import SPARE_SECONDS, Plugin, PluginAuth, Token, ask
from tests.processes import LONG, ended

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
TOKEN = "eyJcanary.TOKEN-0123456789"
QUICK = 0.3
"""Seconds that a plugin which hangs is given."""


@dataclass(frozen=True)
class Shop:
    """Makes plugins: shell scripts in a directory of their own."""

    top: Path

    def plugin(self, script: str, *arguments: str, version: str = V1, **env: str) -> Plugin:
        path = self.top / "plugin"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Plugin(version=version, argv=(str(path), *arguments), environment=env)

    def printing(self, document: object, version: str = V1) -> Plugin:
        text = document if isinstance(document, str) else json.dumps(document)
        return self.plugin(f"printf %s {shlex.quote(text)}", version=version)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def an_answer(version: str = V1, **status: object) -> dict[str, object]:
    return {
        "apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN, **status},
    }  # fmt: skip


def refused(plugin: Plugin, seconds: float = 10.0) -> str:
    """What is said of a plugin that gave no token; none of what it printed is in there."""
    with pytest.raises(ClusterError) as caught:
        ask(plugin, seconds)
    error: BaseException | None = caught.value
    assert caught.value.cause is ClusterCause.CREDENTIAL
    while error is not None:
        assert TOKEN not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert plugin.argv[0] in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_of_either_version_is_asked_in_its_own(shop: Shop, version: str) -> None:
    answer = json.dumps(an_answer(version))
    plugin = shop.plugin(
        f'printf %s "$KUBERNETES_EXEC_INFO" > {shop.top}/info; printf %s {shlex.quote(answer)}',
        version=version,
    )
    token = ask(plugin)
    assert (token.text, token.ends) == (TOKEN, None)
    assert json.loads((shop.top / "info").read_text()) == {
        "apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False},
    }  # fmt: skip
    assert repr(token) == "Token(ends=None)"


def test_arguments_environment_and_an_empty_stdin_reach_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("CHANGED", "old")
    script = f'echo "$1|$2|$INHERITED|$CHANGED|$(cat)" > {shop.top}/seen; exit 1'
    refused(shop.plugin(script, "a b", "--c", CHANGED="new"))
    assert (shop.top / "seen").read_text() == "a b|--c|yes|new|\n"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("2030-01-01T00:00:00Z", 1893456000.0),
        ("2030-01-01T02:00:00+02:00", 1893456000.0),
        ("2030-01-01T00:00:00", 1893456000.0),
        ("2030-01-01T00:00:00.500Z", 1893456000.5),
        ("", None),
        (None, None),
    ],
)
def test_its_end_is_read_with_or_without_a_zone(
    shop: Shop, text: str | None, ends: float | None
) -> None:
    assert ask(shop.printing(an_answer(expirationTimestamp=text))).ends == ends


def test_a_token_serves_until_shortly_before_its_end() -> None:
    assert Token("t", None).serves(1e12)
    assert Token("t", 1000.0).serves(1000.0 - SPARE_SECONDS - 1)
    assert not Token("t", 1000.0).serves(1000.0 - SPARE_SECONDS)


@pytest.mark.parametrize(
    "document",
    [
        "", "{", TOKEN, "null", "[]", json.dumps(TOKEN), {"token": TOKEN},
        {"apiVersion": V1, "kind": "ExecCredential"},
        an_answer(V1BETA1), an_answer() | {"kind": "Token"},
        {"apiVersion": V1, "status": {"token": TOKEN}},
        an_answer() | {"status": {"token": ""}}, an_answer() | {"status": None},
        an_answer() | {"status": {"token": f"{TOKEN}\nX-Header: a"}},
        an_answer() | {"status": {"token": f"{TOKEN} x"}},
        an_answer() | {"status": {"token": "tök" + TOKEN}},
        an_answer() | {"status": {"token": [TOKEN]}},
        an_answer(expirationTimestamp="soon"), an_answer(expirationTimestamp=1893456000),
        an_answer(expirationTimestamp="1893456000"),
        json.dumps(an_answer()) + "\n" + json.dumps(an_answer()),
        "DEBUG: " + json.dumps(an_answer()),
    ],
)  # fmt: skip
def test_what_is_no_credential_is_refused_and_not_repeated(shop: Shop, document: object) -> None:
    assert V1 in refused(shop.printing(document))


def test_bytes_that_are_no_text_and_answers_without_end_are_refused(shop: Shop) -> None:
    refused(shop.plugin(r"printf '\377\376{'"))
    padded = json.dumps(an_answer())[:-1].replace('"', '\\"')
    refused(shop.plugin(f'printf "{padded}"; head -c 300000 /dev/zero | tr "\\0" " "; printf "}}"'))


@pytest.mark.parametrize("version", ["client.authentication.k8s.io/v1alpha1", "", "v1"])
def test_a_version_that_is_not_known_is_refused_and_nothing_is_run(
    shop: Shop, version: str
) -> None:
    said = refused(shop.plugin(f"touch {shop.top}/ran", version=version))
    assert V1BETA1 in said
    assert not (shop.top / "ran").exists()


def test_a_failure_is_told_by_its_status_and_its_last_line_without_secrets(shop: Shop) -> None:
    script = (
        f"echo first >&2; echo 'denied: token={TOKEN} at https://x/y?sig=abc \033[31m' >&2; exit 7"
    )
    said = refused(shop.plugin(script))
    assert "status 7" in said
    assert "denied" in said
    assert "first" not in said
    assert "abc" not in said
    assert "\033" not in said


def test_a_failure_without_a_word_and_one_with_too_many_are_bounded(shop: Shop) -> None:
    assert "it said nothing" in refused(shop.plugin("exit 1"))
    said = refused(shop.plugin("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1"))
    assert len(said) < 1000


def test_a_plugin_that_is_killed_is_a_failure(shop: Shop) -> None:
    assert "status -9" in refused(shop.plugin("kill -9 $$"))


def test_a_plugin_that_is_not_there_or_no_program_is_told(shop: Shop) -> None:
    missing = Plugin(version=V1, argv=(str(shop.top / "missing"),))
    assert "No such file" in refused(missing)
    plugin = shop.plugin("exit 0")
    Path(plugin.argv[0]).chmod(0o644)
    assert "Permission denied" in refused(plugin)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["wait", "exit 0"])
def test_one_that_hangs_is_killed_with_all_its_children_at_the_deadline(
    shop: Shop, ending: str
) -> None:
    plugin = shop.plugin(f"sleep 600 & echo $! > {shop.top}/child; {ending}")
    began = time.monotonic()
    assert f"{QUICK:g} s" in refused(plugin, QUICK)
    assert QUICK <= time.monotonic() - began < LONG
    child = int((shop.top / "child").read_text())
    assert ended(child)


@pytest.mark.slow
def test_a_child_that_fled_its_group_and_keeps_the_pipe_open_holds_nobody(shop: Shop) -> None:
    plugin = shop.plugin(f"setsid sleep 600 & echo $! > {shop.top}/child; exit 0")
    began = time.monotonic()
    refused(plugin, QUICK)
    assert time.monotonic() - began < LONG
    os.kill(int((shop.top / "child").read_text()), 9)


def test_the_shim_of_the_running_release_is_run_and_not_the_link(tmp_path: Path) -> None:
    release = tmp_path / "slots/blue"
    ours = Plugin(version=V1, argv=("/usr/local/bin/hostsync-credential", "token"))
    assert ours.running(release).argv == (str(release / "bin/hostsync-credential"), "token")
    assert ours.running(None) is ours
    foreign = Plugin(version=V1, argv=("/usr/local/bin/aks-flex-node", "token"))
    assert foreign.running(release) is foreign


class Api:
    """An API server that takes one token, and counts what it was sent."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = accepted
        self.seen: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request.headers["authorization"].removeprefix("Bearer "))
        return httpx2.Response(200 if self.seen[-1] in self.accepted else 401)


@pytest.fixture
def client_of(shop: Shop) -> Iterator[Callable[[Api, str], httpx2.Client]]:
    """Clients whose plugin counts up: its tokens are t1, t2, …, and end as told."""
    opened: list[httpx2.Client] = []

    def make(api: Api, ends: str) -> httpx2.Client:
        answer = json.dumps(an_answer(expirationTimestamp=ends)).replace(TOKEN, "t'$n'")
        script = (
            f"n=$(($(cat {shop.top}/n 2>/dev/null) + 1)); echo $n > {shop.top}/n; echo '{answer}'"
        )
        auth = PluginAuth(shop.plugin(script))
        opened.append(httpx2.Client(auth=auth, transport=httpx2.MockTransport(api)))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


LATER, PAST = "2099-01-01T00:00:00Z", "2001-01-01T00:00:00Z"


def test_a_token_is_used_as_long_as_it_serves(client_of: Callable[..., httpx2.Client]) -> None:
    api = Api("t1")
    client = client_of(api, LATER)
    assert [client.get("https://x/").status_code for _ in range(3)] == [200] * 3
    assert api.seen == ["t1"] * 3


def test_one_that_has_ended_is_not_sent_again(client_of: Callable[..., httpx2.Client]) -> None:
    api = Api("t1", "t2")
    client = client_of(api, PAST)
    assert [client.get("https://x/").status_code for _ in range(2)] == [200] * 2
    assert api.seen == ["t1", "t2"]


def test_a_refused_token_is_asked_for_anew_once_and_the_answer_stands(
    client_of: Callable[..., httpx2.Client],
) -> None:
    api = Api("t2")
    client = client_of(api, LATER)
    assert client.get("https://x/").status_code == 200
    assert api.seen == ["t1", "t2"]
    api.accepted = ()
    assert client.get("https://x/").status_code == 401
    assert api.seen == ["t1", "t2", "t2", "t3"]
