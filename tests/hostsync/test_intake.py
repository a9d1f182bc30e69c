"""Orders whose candidate comes from elsewhere: what is switched to, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostsync.activation import switch
from hostsync.activation.intake import Proof, obtain
from hostsync.activation.stage import Options
from hostsync.activation.switch import Switched
from hostsync.activation.trial import settle
from hostsync.errors import FetchCause, FetchError, Reason, Refused
from hostsync.model import Digest, SlotKind
from hostsync.release import Opened
from hostsync.state import Outcome
from tests.hostsync.intake import archive_of, digest_of, put, trusting, url_of
from tests.hostsync.release.minisign import Signer
from tests.hostsync.release.web_server import Server, answer, serving
from tests.hostsync.test_transaction import lasting
from tests.hostsync.world import Killed, World, snapshot

SIGNER = Signer()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def archive(world: World) -> bytes:
    return archive_of(world, "1.1.0")


@pytest.fixture
def server(archive: bytes) -> Iterator[Server]:
    """Publishes the archive, and whatever is asked for after it."""
    with serving(answer(body=archive)) as server:
        yield server


def refused(world: World, reason: Reason, place: object, proof: Proof, **trust: object) -> Refused:
    """The refusal, which changed nothing on the host."""
    assert isinstance(place, (Path, type(url_of("https://x"))))
    host, before = trusting(world, **trust), lasting(world)
    with pytest.raises(Refused) as caught, obtain(host, place, proof) as given:
        switch.upgrade(host, given, Options())
    assert caught.value.reason is reason
    assert caught.value.remedy
    assert lasting(world) == before
    return caught.value


def test_a_release_is_fetched_proven_and_switched_to(
    world: World, archive: bytes, server: Server
) -> None:
    proof = Proof(digest=digest_of(archive))
    host = trusting(world)
    with obtain(host, url_of(server.url()), proof) as given:
        assert isinstance(switch.upgrade(host, given, Options()), Switched)
    line = settle(world.host())
    assert line is not None
    assert (line.outcome, line.version) == (Outcome.COMPLETE, "1.1.0")
    assert [e.stage for e in world.events if e.act == "fetch"] == ["started", "complete"]
    assert not list(world.layout.root.glob(".hostsync*"))


def test_the_opened_file_is_staged_from_and_nothing_is_fetched_twice(
    world: World, archive: bytes, server: Server
) -> None:
    host = trusting(world)
    with obtain(host, url_of(server.url()), Proof(digest=digest_of(archive))) as given:
        assert isinstance(given, Opened)
        assert given.digest == digest_of(archive)
        assert os.fstat(given.fd).st_nlink == 0
        assert os.fstat(given.fd).st_dev == world.layout.root.stat().st_dev
        switch.preflight(host, given, Options())
        switch.upgrade(host, given, Options())
    assert len(server.asked) == 1


def test_a_killed_order_leaves_nothing_of_the_download(
    world: World, archive: bytes, server: Server
) -> None:
    def kill(_done: int, _total: int | None) -> None:
        raise Killed

    before = snapshot(world.top)
    proof = Proof(digest=digest_of(archive), on_fetched=kill)
    with pytest.raises(Killed), obtain(trusting(world), url_of(server.url()), proof):
        pass
    assert snapshot(world.top) == before


def test_a_url_without_a_digest_is_refused_and_nobody_is_asked(
    world: World, server: Server
) -> None:
    refusal = refused(world, Reason.UNTRUSTED_SOURCE, url_of(server.url()), Proof())
    assert "--sha256" in refusal.remedy
    assert server.asked == []


def test_clear_text_is_refused_and_nobody_is_asked(
    world: World, archive: bytes, server: Server
) -> None:
    proof = Proof(digest=digest_of(archive))
    place = url_of(server.url())
    refused(world, Reason.UNTRUSTED_SOURCE, place, proof, insecure_hosts=frozenset())
    assert server.asked == []


def test_a_download_that_would_eat_the_reserve_is_refused_by_its_length(
    world: World, archive: bytes, server: Server
) -> None:
    host = trusting(world)
    host = replace(host, config=replace(host.config, reserve_bytes=(1 << 40) - 10))
    with (
        pytest.raises(FetchError) as caught,
        obtain(host, url_of(server.url()), Proof(digest=digest_of(archive))),
    ):
        pass
    assert caught.value.cause is FetchCause.TOO_LARGE


def test_a_local_archive_with_its_digest_is_switched_to(world: World, archive: bytes) -> None:
    path = put(world.top / "candidates/x.tar.gz", archive)
    host = trusting(world)
    with obtain(host, path, Proof(digest=digest_of(archive))) as given:
        assert isinstance(switch.upgrade(host, given, Options()), Switched)


def test_a_local_archive_with_another_digest_is_refused_unparsed(
    world: World, archive: bytes
) -> None:
    path = put(world.top / "candidates/x.tar.gz", b"\x1f\x8b no archive at all")
    refusal = refused(world, Reason.BAD_CANDIDATE, path, Proof(digest=digest_of(archive)))
    assert "ordered was" in refusal.brief


def test_a_directory_is_compared_by_its_content_digest(world: World) -> None:
    if world.layout.kind is SlotKind.FILE:
        pytest.skip("a slot that holds a file takes no directory")
    path = world.candidate("1.1.0")
    proof = Proof(digest=Digest("0" * 64))
    assert "ordered was 0000" in refused(world, Reason.BAD_CANDIDATE, path, proof).brief


# Signatures


@pytest.mark.parametrize("prehashed", [True, False])
def test_a_signed_release_is_switched_to(world: World, archive: bytes, *, prehashed: bool) -> None:
    signature = SIGNER.sign(archive, prehashed=prehashed)
    host = trusting(world, trusted_keys=(SIGNER.public,))
    with serving(answer(body=archive), answer(body=signature)) as server:
        place = url_of(server.url("/x.tar.gz?a=1"))
        with obtain(host, place, Proof(digest=digest_of(archive))) as given:
            assert isinstance(switch.upgrade(host, given, Options()), Switched)
        assert server.asked[1].line.startswith("GET /x.tar.gz.minisig?a=1 ")


def test_a_local_release_is_signed_by_the_file_beside_it_or_the_one_that_is_named(
    world: World, archive: bytes
) -> None:
    path = put(world.top / "candidates/x.tar.gz", archive)
    named = put(world.top / "elsewhere", SIGNER.sign(archive))
    host = trusting(world, trusted_keys=(SIGNER.public,))
    with obtain(host, path, Proof(signature=named)) as given:
        switch.preflight(host, given, Options())
    put(path.with_name("x.tar.gz.minisig"), SIGNER.sign(archive))
    with obtain(host, path, Proof()) as given:
        assert isinstance(switch.upgrade(host, given, Options()), Switched)


def test_a_release_altered_after_its_signature_was_checked_is_refused(
    world: World, archive: bytes
) -> None:
    path = put(world.top / "candidates/x.tar.gz", archive)
    put(path.with_name("x.tar.gz.minisig"), SIGNER.sign(archive))
    host = trusting(world, trusted_keys=(SIGNER.public,))
    with obtain(host, path, Proof()) as given:
        path.write_bytes(archive_of(world, "6.6.6"))
        with pytest.raises(Refused, match="ordered was"):
            switch.upgrade(host, given, Options())


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        (answer(404), "unsigned"),
        (answer(body=b""), "not a minisign signature"),
        (answer(body=b"x" * 9000), "exceeds"),
        (answer(body=SIGNER.sign(b"other bytes")), "does not match"),
        (answer(body=Signer(id=b"somebody").sign(b"x")), "not trusted"),
    ],
)
def test_a_release_that_is_not_well_signed_is_refused_whatever_its_digest(
    world: World, archive: bytes, signature: object, says: str
) -> None:
    with serving(answer(body=archive), signature) as server:  # type: ignore[arg-type]
        proof, keys = Proof(digest=digest_of(archive)), (SIGNER.public,)
        host, before = trusting(world, trusted_keys=keys), snapshot(world.top)
        with (
            pytest.raises((Refused, FetchError), match=says),
            obtain(host, url_of(server.url()), proof),
        ):
            pass
    assert snapshot(world.top) == before


def test_an_unsigned_path_and_a_directory_are_refused_where_keys_are_configured(
    world: World, archive: bytes
) -> None:
    keys = (SIGNER.public,)
    path = put(world.top / "candidates/x.tar.gz", archive)
    refusal = refused(world, Reason.UNTRUSTED_SOURCE, path, Proof(), trusted_keys=keys)
    assert "x.tar.gz.minisig cannot be read" in refusal.brief
    place = world.candidate("1.2.0")
    refused(world, Reason.UNTRUSTED_SOURCE, place, Proof(), trusted_keys=keys)


def test_keys_that_cannot_be_loaded_refuse_everything_and_skip_nothing(
    world: World, archive: bytes, server: Server
) -> None:
    keys = (str(world.top / "missing.pub"),)
    proof = Proof(digest=digest_of(archive))
    for place in (world.candidate("1.2.0"), url_of(server.url())):
        refusal = refused(world, Reason.UNTRUSTED_SOURCE, place, proof, trusted_keys=keys)
        assert "no trusted key can be loaded" in refusal.brief
    assert server.asked == []


# Versions


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0-rc.1", "1.0~odd"])
def test_a_lower_version_is_refused_where_downgrades_are(world: World, version: str) -> None:
    place = world.candidate(version)
    refusal = refused(world, Reason.DOWNGRADE, place, Proof(), allow_downgrade=False)
    assert version in refusal.brief


@pytest.mark.parametrize(("version", "allowed"), [("0.9.0", True), ("1.0.0.post1", False)])
def test_other_versions_are_switched_to(world: World, version: str, *, allowed: bool) -> None:
    host = trusting(world, allow_downgrade=allowed)
    with obtain(host, world.candidate(version), Proof()) as given:
        assert isinstance(switch.upgrade(host, given, Options()), Switched)
