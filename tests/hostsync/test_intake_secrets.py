"""A canary in every place where a secret can be: no failure of a download repeats it anywhere."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
import trustme

from hostsync import render
from hostsync.activation import switch
from hostsync.activation.intake import Proof, obtain
from hostsync.activation.plan import Plan
from hostsync.activation.stage import Options
from hostsync.activation.trial import settle
from hostsync.cli.main import main
from hostsync.errors import HostsyncError
from hostsync.model import Digest
from hostsync.release.setback import Terms
from hostsync.release.url import DownloadUrl
from tests.hostsync.intake import archive_of, digest_of, trusting, url_of
from tests.hostsync.release.downloads import PROXIES, certified
from tests.hostsync.release.web_server import Answer, answer, head, raw, redirect, serving, whole
from tests.hostsync.world import World

CANARY = "c4n4rySECRET"
DIGEST = Digest("0" * 64)
SAID = {"set_cookie": f"a={CANARY}", "www_authenticate": f"Basic realm={CANARY}"}
BROKEN: dict[str, Sequence[Answer]] = {
    "status": [answer(403, CANARY.encode(), **SAID)],
    "transient status": [answer(503, CANARY.encode(), retry_after=CANARY, **SAID)],
    "reason": [raw(f"HTTP/1.1 404 {CANARY}\r\nconnection: close\r\n\r\n".encode())],
    "no http": [raw(f"{CANARY}\r\n\r\n".encode())],
    "bad header": [raw(f"HTTP/1.1 200 OK\r\n{CANARY}\x00\r\n\r\n".encode())],
    "bad length": [raw(f"HTTP/1.1 200 OK\r\ncontent-length: {CANARY}\r\n\r\n".encode())],
    "nothing": [raw(b"")],
    "cut short": [whole(b"x" * 99, tag=f'"{CANARY}"', cut=9)],
    "bad range": [
        whole(b"x" * 99, tag=f'"{CANARY}"', cut=9),
        raw(head(206, {"content-range": CANARY})),
    ],
    "encoding": [answer(body=b"x", content_encoding=CANARY)],
    "too large": [raw(head(200, {"content-length": "9" * 15, "x": CANARY}))],
    "other bytes": [answer(body=CANARY.encode())],
    "redirect to userinfo": [redirect(f"https://{CANARY}:{CANARY}@127.0.0.1/x")],
    "redirect to fragment": [redirect(f"/x#{CANARY}")],
    "redirect to nonsense": [redirect(f"://{CANARY}\x7f")],
    "redirect to nobody": [redirect(f"http://127.0.0.1:1/x?sig={CANARY}")],
    "redirect to clear text": [redirect(f"http://elsewhere.invalid/x?sig={CANARY}")],
    "redirects without end": [redirect(f"/again?sig={CANARY}")],
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def emitted(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> str:
    """All that was printed, logged, told or written."""
    parts = [*capfd.readouterr(), caplog.text, *map(render.event_line, world.events)]
    parts += [repr(event) for event in world.events]
    for path in world.top.rglob("*"):
        parts.append(str(path))
        if path.is_file():
            parts.append(path.read_bytes().decode("latin-1"))
    return "\n".join(parts)


def chain(error: BaseException | None) -> Iterator[str]:
    """What any printer of an exception could show of it."""
    while error is not None:
        yield f"{error!s} {error!r} {vars(error)!r}"
        error = error.__cause__ or error.__context__


def fail(world: World, url: DownloadUrl, terms: Terms | None = None) -> HostsyncError:
    proof = Proof(digest=DIGEST, terms=terms or Terms())
    with pytest.raises(HostsyncError) as caught, obtain(trusting(world), url, proof):
        pass
    return caught.value


@pytest.mark.parametrize("failure", BROKEN)
def test_no_failure_of_a_server_repeats_a_secret(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], failure: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(*BROKEN[failure]) as server:
        error = fail(world, url_of(server.url(f"/x?sig={CANARY}")))
        assert CANARY in server.asked[0].line
    assert str(server.port) in str(error) or "elsewhere.invalid" in str(error)
    shown = [str(render.error_value(error)), render.error_line(error), *chain(error)]
    assert [text for text in shown if CANARY in text] == []
    assert CANARY not in emitted(world, caplog, capfd)


@pytest.mark.parametrize("failure", ["name", "port", "certificate", "no tls", "proxy", "proxy 407"])
def test_no_failure_on_the_way_to_a_server_repeats_a_secret(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, failure: str,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    authority = trustme.CA()
    bundle = world.top / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with ExitStack() as stack:
        error = fail(world, _place(failure, stack, authority, monkeypatch), Terms(attempts=1))
    assert [text for text in chain(error) if CANARY in text] == []
    assert CANARY not in emitted(world, caplog, capfd)


def _place(
    failure: str, stack: ExitStack, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> DownloadUrl:
    tls: ssl.SSLContext | None = None
    host, port = "127.0.0.1", 1
    match failure:
        case "name":
            host = "nowhere.invalid"
        case "certificate":
            tls = certified(authority, "other.invalid")
            port = stack.enter_context(serving(answer(), tls=tls)).port
        case "no tls":
            port = stack.enter_context(serving(answer())).port
        case "proxy":
            monkeypatch.setenv("HTTPS_PROXY", f"http://{CANARY}:{CANARY}@127.0.0.1:1")
        case "proxy 407":
            refusing = raw(f"HTTP/1.1 407 {CANARY}\r\nx: {CANARY}\r\n\r\n".encode())
            proxy = stack.enter_context(serving(refusing))
            monkeypatch.setenv("HTTPS_PROXY", f"http://{CANARY}@127.0.0.1:{proxy.port}")
    return url_of(f"https://{host}:{port}/x?sig={CANARY}")


def test_an_upgrade_keeps_the_query_of_its_url_nowhere(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    archive = archive_of(world, "1.1.0", "crash")
    with serving(redirect(f"/real?sig={CANARY}"), answer(body=archive)) as server:
        url = url_of(server.url(f"/x?sig={CANARY}"))
        with obtain(trusting(world), url, Proof(digest=digest_of(archive))) as given:
            plan = switch.preflight(world.host(), given, Options())
            switch.upgrade(world.host(), given, Options())
            assert CANARY not in emitted(world, caplog, capfd)
    assert isinstance(plan, Plan)
    assert server.url("/x") in render.plan_text(plan)
    assert CANARY not in render.to_json(render.plan_value(plan))
    settle(world.host())
    assert CANARY not in emitted(world, caplog, capfd)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "place",
    [
        f"https://{CANARY}:{CANARY}@host/x",
        f"https://host/x?sig={CANARY}",
        f"http://host/x?sig={CANARY}",
        f"https://host/x#{CANARY}",
        f"ftp://host/{CANARY}",
        f"file://{CANARY}/x",
        f"https://host/ {CANARY}",
    ],
)
@pytest.mark.root
def test_no_refusal_of_the_command_line_repeats_a_secret(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    place: str, form: str,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    assert run(world, place, form) in {2, 3}
    told = emitted(world, caplog, capfd)
    assert CANARY not in told
    assert "hostsync: " in told


@pytest.mark.root
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("failure", ["status", "other bytes", "redirect to userinfo"])
def test_no_failed_command_repeats_a_secret(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    failure: str, form: str,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    with serving(*BROKEN[failure]) as server:
        place = server.url(f"/x?sig={CANARY}")
        assert run(world, place, form, "--sha256", DIGEST.hex) in {1, 3}
        assert server.asked
    told = emitted(world, caplog, capfd)
    assert CANARY not in told
    assert f"127.0.0.1:{server.port}/x" in told


def run(world: World, place: str, form: str, *options: str) -> int:
    """The exit status of `hostsync upgrade`, on a host of its own beneath the world's."""
    config = world.top / "config.toml"
    root = world.top / "cli"
    (root / "slots").mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'state_root = "{root}/state"\nrun_root = "{root}/run"\nunit_root = "{root}/units"\n'
        f'[agents.hostsync]\nslot_root = "{root}/slots"\nbin_root = "{root}/bin"\n'
        '[download]\ninsecure_hosts = ["127.0.0.1"]\n'
    )
    words = ["--config", str(config), "--output", form, "upgrade", place, *options]
    return main(words)
