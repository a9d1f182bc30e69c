"""Watches: from a list on, by bookmarks, through 410, a missing kind and a lost server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.errors import ClusterCause
from hostsync.operations.board import Board
from hostsync.operations.cluster import Change, Seen
from hostsync.operations.watching import (
    FIRST_PAUSE,
    KIND_PAUSE,
    LONGEST_PAUSE,
    Means,
    Trouble,
    Watching,
)
from tests.operations.played_cluster import PlayedCluster, raising, trouble
from tests.operations.specimens import ME, PROPERTY, an_operation

MINE = f"spec.machineRef={ME.machine}"


class EndError(Exception):
    """Ends a watch that would go on for ever; no trouble of the cluster."""


@dataclass
class Watched:
    """A watch on a played cluster, and what came of it."""

    chance: Callable[[], float] = lambda: 0.5
    else_all: bool = True
    cluster: PlayedCluster = field(default_factory=PlayedCluster)
    board: Board = field(default_factory=Board)
    told: list[Trouble] = field(default_factory=list)

    def __post_init__(self) -> None:
        means = Means(chance=self.chance, tell=self.told.append, seconds=100)
        self.watching = Watching(self.cluster, self.board, MINE, means, else_all=self.else_all)

    def turns(self, count: int) -> list[float | None]:
        return [self.watching.turn() for _ in range(count)]

    def names(self) -> list[str]:
        return sorted(each.name for each in self.board.operations())

    def causes(self) -> list[ClusterCause | None]:
        return [each.cause for each in self.told]


def put(name: str, version: str) -> Seen:
    return Seen(change=Change.PUT, version=version, operation=an_operation(name))


def gone(name: str, version: str) -> Seen:
    return Seen(change=Change.GONE, version=version, operation=an_operation(name))


def mark(version: str) -> Seen:
    return Seen(change=Change.MARK, version=version)


def test_a_list_is_taken_first_and_watched_from_its_version_on() -> None:
    watched = Watched()
    watched.cluster.put(an_operation("a"))
    watched.cluster.put(an_operation("b", machine="host-2"))
    assert watched.turns(1) == [0.5]
    assert watched.names() == ["a"]
    assert watched.cluster.log == [f"list {MINE}", f"watch {MINE} 102 100"]


def test_events_put_and_remove_and_are_never_listed_again() -> None:
    watched = Watched()
    watched.cluster.watches = [[put("a", "110"), put("b", "111"), gone("a", "112")], []]
    watched.turns(2)
    assert watched.names() == ["b"]
    assert watched.cluster.log[2:] == [f"watch {MINE} 112 100"]


def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    watched = Watched()
    watched.cluster.watches = [[put("a", "110"), mark("990")], []]
    watched.turns(2)
    assert watched.names() == ["a"]
    assert watched.cluster.log[-1] == f"watch {MINE} 990 100"


def test_an_event_without_a_version_does_not_lose_the_place() -> None:
    watched = Watched()
    watched.cluster.watches = [[put("a", "110"), mark("")], []]
    watched.turns(2)
    assert watched.cluster.log[-1] == f"watch {MINE} 110 100"


def test_a_version_that_is_too_old_leads_to_a_new_list_that_forgets_what_went() -> None:
    watched = Watched()
    watched.cluster.watches = [[put("a", "110"), trouble(ClusterCause.EXPIRED)], []]
    watched.cluster.put(an_operation("b"))
    watched.turns(2)
    assert watched.names() == ["b"]
    assert watched.cluster.count("list") == 2
    assert watched.causes() == []


def test_a_server_that_forgets_at_once_each_time_is_listed_ever_less_often() -> None:
    watched = Watched(chance=lambda: 1.0)
    watched.cluster.watches = [[trouble(ClusterCause.EXPIRED)]] * 8
    assert watched.turns(8) == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]
    watched.cluster.watches = [[mark("900"), trouble(ClusterCause.EXPIRED)]]
    assert watched.turns(1) == [1]


def test_a_list_that_expired_between_its_pages_is_begun_anew() -> None:
    watched = Watched()
    watched.cluster.before["list"] = [raising(ClusterCause.EXPIRED)]
    watched.turns(2)
    assert watched.cluster.count("list") == 2
    assert watched.cluster.count("watch") == 1


def test_a_kind_that_appears_later_is_found_and_told_once() -> None:
    watched = Watched()
    watched.cluster.before["list"] = [raising(ClusterCause.NO_KIND)] * 3
    watched.cluster.put(an_operation("a"))
    assert watched.turns(4) == [KIND_PAUSE] * 3 + [0.5]
    assert watched.names() == ["a"]
    assert watched.causes() == [ClusterCause.NO_KIND, None]


def test_a_kind_that_is_taken_away_takes_its_operations_along() -> None:
    watched = Watched()
    watched.cluster.watches = [[put("a", "110")], [trouble(ClusterCause.NO_KIND)]]
    watched.turns(2)
    assert watched.names() == []


def test_without_a_field_selector_everything_is_watched_instead() -> None:
    watched = Watched()
    watched.cluster.before["list"] = [raising(ClusterCause.NO_FIELD)]
    watched.cluster.put(an_operation("a"))
    assert watched.turns(2) == [0.0, 0.5]
    assert watched.cluster.log == [f"list {MINE}", "list ", "watch  101 100"]
    assert watched.names() == ["a"]


def test_a_field_that_is_lost_between_list_and_watch_is_noticed_as_well() -> None:
    watched = Watched()
    watched.cluster.before["watch"] = [raising(ClusterCause.NO_FIELD)]
    assert watched.turns(2) == [0.0, 0.5]
    assert watched.cluster.count("list") == 2


def test_a_second_watch_that_would_see_the_same_ends() -> None:
    watched = Watched(else_all=False)
    watched.cluster.before["list"] = [raising(ClusterCause.NO_FIELD)]
    watched.watching.run()
    assert watched.cluster.log == [f"list {MINE}"]
    assert watched.told == []


def test_a_single_cut_is_not_told_a_longer_one_once_and_its_end_once() -> None:
    watched = Watched()
    watched.cluster.before["watch"] = [raising(ClusterCause.UNREACHABLE)]
    watched.turns(2)
    assert watched.causes() == []
    watched.cluster.before["watch"] = [raising(ClusterCause.UNREACHABLE)] * 5
    watched.turns(6)
    assert watched.causes() == [ClusterCause.UNREACHABLE, None]


def test_a_refused_credential_is_told_at_once() -> None:
    watched = Watched()
    watched.cluster.before["list"] = [raising(ClusterCause.DENIED)] * 3
    watched.turns(4)
    assert watched.causes() == [ClusterCause.DENIED, None]


def test_a_trouble_that_turns_into_another_is_told_again() -> None:
    watched = Watched()
    causes = [ClusterCause.CREDENTIAL, ClusterCause.DENIED, ClusterCause.DENIED]
    watched.cluster.before["list"] = [raising(cause) for cause in causes]
    watched.turns(4)
    assert watched.causes() == [ClusterCause.CREDENTIAL, ClusterCause.DENIED, None]


def test_an_outage_loses_nothing_and_forgets_nothing() -> None:
    watched = Watched()
    watched.cluster.watches = [
        [put("a", "110"), trouble(ClusterCause.UNREACHABLE)], [put("b", "111")],
    ]  # fmt: skip
    watched.turns(2)
    assert watched.names() == ["a", "b"]
    assert watched.cluster.count("list") == 1
    assert watched.cluster.log[-1] == f"watch {MINE} 110 100"


def test_pauses_grow_with_each_failure_and_begin_anew_after_an_answer() -> None:
    watched = Watched(chance=lambda: 1.0)
    watched.cluster.before["list"] = [raising(ClusterCause.UNREACHABLE)] * 8
    doubling = [FIRST_PAUSE * 2**number for number in range(5)]
    assert watched.turns(8) == [*doubling, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    watched.turns(1)
    watched.cluster.before["watch"] = [raising(ClusterCause.UNREACHABLE)]
    assert watched.turns(1) == [FIRST_PAUSE]


def test_a_server_that_names_a_pause_gets_it_on_top() -> None:
    watched = Watched(chance=lambda: 0.0)
    watched.cluster.before["list"] = [raising(ClusterCause.UNREACHABLE, wait=17)]
    assert watched.turns(1) == [17]


@PROPERTY
@given(
    st.lists(st.sampled_from(list(ClusterCause)), max_size=12),
    st.floats(0, 1, exclude_max=True),
)
def test_whatever_goes_wrong_pauses_are_bounded_and_follow_chance(
    causes: list[ClusterCause], chance: float
) -> None:
    watched, still = Watched(chance=lambda: chance), Watched(chance=lambda: 0.0)
    for each in (watched, still):
        each.cluster.before["list"] = [raising(cause) for cause in causes]
    for pause, least in zip(watched.turns(14), still.turns(14), strict=True):
        assert pause is not None
        assert least is not None
        assert least <= pause <= max(LONGEST_PAUSE, KIND_PAUSE * 1.5)
        if chance == 0.0:
            assert pause == least


def test_no_two_watches_of_a_fleet_end_at_the_same_time() -> None:
    lengths = set()
    for chance in (0.0, 0.25, 0.99):
        watched = Watched(chance=lambda chance=chance: chance)  # type: ignore[misc]
        watched.turns(1)
        lengths.add(float(watched.cluster.log[-1].split()[-1]))
    assert len(lengths) == 3
    assert all(80 <= length <= 120 for length in lengths)


def test_it_runs_until_something_that_is_no_trouble_of_the_cluster_ends_it() -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise EndError

    means = Means(chance=lambda: 0.5, pause=pause)
    with pytest.raises(EndError):
        Watching(PlayedCluster(), Board(), MINE, means).run()
    assert pauses == [0.5] * 3


def test_a_failure_of_ours_is_not_taken_for_one_of_the_cluster() -> None:
    watched = Watched()

    def broken() -> None:
        raise EndError

    watched.cluster.before["list"] = [broken]
    with pytest.raises(EndError):
        watched.turns(1)
