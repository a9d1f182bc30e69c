"""Issuing: cache, single flight, remembered failures, rejections, outages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from credential_shim import entries
from credential_shim.cache import HOLD_SECONDS, Lock, Store, open_store
from credential_shim.clock import Deadline
from credential_shim.entries import LONGEST_HOLD, Entry
from credential_shim.errors import (
    DeniedError,
    MalformedError,
    ShimError,
    ThrottledError,
    UnreachableError,
)
from credential_shim.issue import SPARE_BUDGET, SPARE_HOLD, Issuer
from credential_shim.tokens import Token
from tests.credential_shim.fakes import FakeClock, ScriptedSource

LIFETIME = 1000.0
OTHER_KEY = "1700000500 1700000000 5\nother\nm"
DOWN = UnreachableError("identity endpoint down")


@dataclass(slots=True)
class Bench:
    """One identity's issuer; each ``obtain`` is a process of its own as far as it can tell."""

    path: str
    clock: FakeClock = field(default_factory=FakeClock)
    source: ScriptedSource = field(default_factory=lambda: ScriptedSource([]))
    said: list[str] = field(default_factory=list)

    stores: list[Store] = field(default_factory=list)

    def store(self) -> Store:
        store = open_store(self.path, "key", self.said.append)
        self.stores.append(store)
        return store

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def will(self, *results: str | ShimError) -> None:
        """Queue tokens (by text) and errors."""
        ends = self.clock.wall + LIFETIME
        self.source.results += [
            Token(result, expires=ends) if isinstance(result, str) else result for result in results
        ]

    def obtain(self, *, as_new_asker: bool = True, notes: tuple[str, ...] = ()) -> str:
        """The token obtained; the source's results may not run out."""
        if as_new_asker:
            for seen in Path(self.path).glob("*.seen"):
                seen.unlink()
        issuer = Issuer(self.source, self.store(), self.clock, self.said.append)
        body = issuer.obtain("v1", Deadline(self.clock, self.clock.steady + 7.5), notes)
        token = json.loads(body)["status"]["token"]
        assert isinstance(token, str)
        return token

    def refused(self) -> ShimError:
        with pytest.raises(ShimError) as caught:
            self.obtain()
        return caught.value


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(str(tmp_path / "run" / "credential"))
    yield made
    made.close()


def test_a_fetched_credential_is_served_from_the_cache_until_its_refresh_time(
    bench: Bench,
) -> None:
    bench.will("one", "two")
    assert bench.obtain() == "one"
    bench.clock.advance(0.74 * LIFETIME)
    assert bench.obtain() == "one"
    bench.clock.advance(0.02 * LIFETIME)
    assert bench.obtain() == "two"


def test_the_cache_is_private(bench: Bench) -> None:
    bench.will("one")
    bench.obtain()
    assert Path(bench.path).stat().st_mode & 0o777 == 0o700
    files = list(Path(bench.path).iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert not any(file.name.endswith(".new") for file in files)


def test_notes_are_said_when_a_token_is_fetched_and_not_when_cached(bench: Bench) -> None:
    bench.will("one")
    bench.obtain(notes=("conflict",))
    bench.obtain(notes=("conflict",))
    assert bench.said == ["conflict"]


def test_a_rejected_credential_is_replaced_once(bench: Bench) -> None:
    bench.will("one", "two", "three")
    assert bench.obtain() == "one"
    assert bench.obtain(as_new_asker=False) == "two"
    assert bench.obtain(as_new_asker=False) == "two"
    bench.clock.advance(entries.FORCED_PAUSE + 1)
    assert bench.obtain(as_new_asker=False) == "three"


def test_a_rejected_credential_is_served_again_when_no_other_can_be_had(bench: Bench) -> None:
    bench.will("one", DOWN)
    assert bench.obtain() == "one"
    assert bench.obtain(as_new_asker=False) == "one"
    assert "down" in bench.said[0]


def test_in_an_outage_the_old_token_is_served_to_its_real_end_with_a_warning(bench: Bench) -> None:
    bench.will("one", *[DOWN] * 2)
    bench.obtain()
    bench.clock.advance(0.8 * LIFETIME)
    assert bench.obtain() == "one"
    assert "serving the cached credential" in bench.said[-1]
    assert bench.source.budgets[-1] == SPARE_BUDGET
    bench.clock.advance(SPARE_HOLD - 1)
    assert bench.obtain() == "one"
    assert len(bench.source.budgets) == 2
    bench.clock.advance(0.2 * LIFETIME - SPARE_HOLD)
    assert bench.obtain() == "one"
    bench.clock.advance(2)
    assert bench.refused().exit_code == 4


def test_a_failure_is_remembered_for_a_moment_with_its_exit_code(bench: Bench) -> None:
    bench.will(DeniedError("identity not found"), "one")
    assert bench.refused().exit_code == 5
    again = bench.refused()
    assert again.exit_code == 5
    assert "identity not found" in again.message
    assert len(bench.source.budgets) == 1
    bench.clock.advance(HOLD_SECONDS + 0.1)
    assert bench.obtain() == "one"


@pytest.mark.parametrize(
    ("asked", "held"), [(30.0, 30.0), (0.0, HOLD_SECONDS), (1e9, LONGEST_HOLD)]
)
def test_retry_after_is_honoured_within_bounds(bench: Bench, asked: float, held: float) -> None:
    bench.will(ThrottledError("throttled", hold=asked), "one")
    assert bench.refused().exit_code == 6
    bench.clock.advance(held - 0.1)
    assert bench.refused().exit_code == 6
    bench.clock.advance(0.2)
    bench.source.results.clear()
    bench.will("one")
    assert bench.obtain() == "one"


def test_a_failure_from_the_future_is_forgotten(bench: Bench) -> None:
    bench.will(ThrottledError("throttled", hold=500), "one")
    bench.refused()
    bench.clock.wall -= 3600
    assert bench.obtain() == "one"


def test_a_success_forgets_the_failure(bench: Bench) -> None:
    bench.will("one", DOWN)
    bench.obtain()
    bench.clock.advance(0.8 * LIFETIME)
    bench.obtain()
    bench.clock.advance(SPARE_HOLD + 1)
    bench.will("two")
    assert list(Path(bench.path).glob("*.fail"))
    assert bench.obtain() == "two"
    assert not list(Path(bench.path).glob("*.fail"))


def test_an_expired_token_is_a_failure_and_is_not_cached(bench: Bench) -> None:
    bench.source.results.append(Token("dead", expires=bench.clock.wall + 0.01))
    with pytest.raises(MalformedError):
        bench.obtain()
    assert bench.store().load() is None


def other_holder(bench: Bench) -> Store:
    """Another process that fetches right now."""
    store = bench.store()
    assert store.lock(bench.clock, 0) is Lock.HELD
    return store


def when_slept(bench: Bench, times: int, act: Callable[[], None]) -> None:
    bench.clock.on_sleep = lambda: act() if len(bench.clock.slept) == times else None


def entry_of(bench: Bench, token: str) -> Entry:
    """What another process stores that fetched this token."""
    copy = Bench(bench.path + "-copy", clock=bench.clock)
    copy.will(token)
    copy.obtain()
    entry = copy.store().load()
    assert entry is not None
    copy.close()
    return entry


def test_a_waiter_takes_what_the_holder_fetched(bench: Bench) -> None:
    holder = other_holder(bench)
    entry = entry_of(bench, "theirs")

    def finish() -> None:
        holder.save(entry)
        holder.unlock()

    when_slept(bench, 3, finish)
    assert bench.obtain() == "theirs"
    assert bench.source.budgets == []


def test_a_waiter_goes_on_with_what_is_there_although_the_lock_is_still_held(bench: Bench) -> None:
    """Of two hundred that wait none has to have the lock to see that the token is there."""
    holder = other_holder(bench)
    entry = entry_of(bench, "theirs")
    when_slept(bench, 3, lambda: holder.save(entry))
    assert bench.obtain() == "theirs"
    assert len(bench.clock.slept) == 3
    assert bench.source.budgets == []
    holder.unlock()


def test_the_longer_the_wait_the_less_often_the_lock_is_tried(bench: Bench) -> None:
    holder = other_holder(bench)
    bench.will("own")
    bench.obtain()
    assert bench.clock.slept == sorted(bench.clock.slept[:-1]) + bench.clock.slept[-1:]
    assert max(bench.clock.slept) == pytest.approx(0.2)
    assert len(bench.clock.slept) < 40
    holder.unlock()


def test_a_waiter_shares_the_holders_failure(bench: Bench) -> None:
    holder = other_holder(bench)

    def fail() -> None:
        holder.remember(DOWN, bench.clock.now(), 1.5)
        holder.unlock()

    when_slept(bench, 3, fail)
    assert bench.refused().exit_code == 4
    assert bench.source.budgets == []


def test_a_lock_held_for_too_long_costs_a_request_but_no_token(bench: Bench) -> None:
    holder = other_holder(bench)
    bench.will("own")
    assert bench.obtain() == "own"
    assert bench.source.budgets[0] == pytest.approx(2.5, abs=0.1)
    holder.unlock()


def test_while_another_renews_the_old_token_is_served_at_once_and_silently(bench: Bench) -> None:
    bench.will("one")
    bench.obtain()
    bench.clock.advance(0.8 * LIFETIME)
    holder = other_holder(bench)
    assert bench.obtain() == "one"
    assert bench.clock.slept == []
    assert bench.said == []
    holder.unlock()


def test_a_lock_left_by_a_dead_process_is_free(bench: Bench) -> None:
    bench.will("one")
    bench.obtain()
    child = os.fork()
    if child == 0:
        os._exit(0 if bench.store().lock(bench.clock, 0) is Lock.HELD else 1)
    assert os.waitpid(child, 0)[1] == 0
    other_holder(bench)


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_an_unsafe_cache_directory_is_said_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "credential"
    match kind:
        case "open":
            path.mkdir()
            path.chmod(0o777)
        case "link":
            (tmp_path / "real").mkdir(mode=0o700)
            path.symlink_to("real")
        case "file":
            path.write_text("x")
    bench = Bench(str(path))
    bench.will("one", "two")
    assert bench.obtain() == "one"
    assert bench.obtain() == "two"
    bench.close()
    assert "is not used" in bench.said[0]
    assert not list(tmp_path.glob("*/*"))


def test_a_directory_that_cannot_be_made_costs_no_token_and_no_word(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = Bench(str(tmp_path / "file" / "a" / "b"))
    bench.will("one")
    assert bench.obtain() == "one"
    assert bench.said == []


def test_a_stale_temporary_file_is_replaced(bench: Bench) -> None:
    bench.will(DOWN, "one")
    bench.refused()
    (Path(bench.path) / "key.new").write_text("torn")
    bench.clock.advance(5)
    assert bench.obtain() == "one"
    assert bench.obtain() == "one"


def test_a_foreign_failure_file_is_ignored(bench: Bench) -> None:
    bench.will("one")
    bench.store()
    file = Path(bench.path) / "key.fail"
    for content in ("", "x", "9e99 0 5\nkey\nm", "1700000500 1700000000 0\nkey\nm", OTHER_KEY):
        file.write_text(content)
        file.chmod(0o600)
        assert bench.store().failure(bench.clock.wall) is None
    file.write_text(OTHER_KEY.replace("other", "key"))
    assert bench.store().failure(bench.clock.wall) is not None
