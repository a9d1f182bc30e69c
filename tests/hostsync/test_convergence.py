"""A mirror becomes what the host is, from any state, and never loses its current release."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostsync.convergence import Link, Listing, Move, Put, Remove, Step, Wanted, converge

SEALS = [b"one", b"two", b"three"]
HOST_NAMES = ["blue", "green", ".hostsync-staging-1", ".hostsync-evicted-1"]
NAMES = [*HOST_NAMES, ".hostsync-park-blue", ".hostsync-new-blue", ".hostsync-new-green"]
links = st.fixed_dictionaries(
    {"current": st.sampled_from(["blue", "green"]), "last-good": st.sampled_from(["blue", "green"])}
)
hosts = st.builds(
    Listing,
    entries=st.dictionaries(st.sampled_from(HOST_NAMES), st.sampled_from(SEALS)),
    links=links,
    wanted=st.sampled_from(SEALS),
)
mirrors = st.builds(
    Listing,
    entries=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*SEALS, None])),
    links=st.dictionaries(
        st.sampled_from(["current", "last-good"]), st.sampled_from(["blue", "green", "/etc", None])
    ),
    wanted=st.sampled_from([*SEALS, None]),
)


def walk(host: Listing, mirror: Listing, steps: tuple[Step, ...]) -> Listing:
    """Carry the steps out on a model that refuses what a filesystem refuses."""
    entries: dict[str, bytes | None] = dict(mirror.entries)
    linked: dict[str, str | None] = dict(mirror.links)
    wanted = mirror.wanted
    for step in steps:
        match step:
            case Put(source, name):
                assert name not in entries
                entries[name] = host.entries[source]
            case Move(old, new):
                assert new not in entries
                entries[new] = entries.pop(old)
            case Remove(name):
                del entries[name]
            case Link(name, target):
                linked[name] = target
            case Wanted(seal):
                wanted = seal
    return Listing(entries=entries, links=linked, wanted=wanted)


@given(hosts, mirrors)
def test_any_mirror_becomes_what_the_host_is(host: Listing, mirror: Listing) -> None:
    result = walk(host, mirror, converge(host, mirror))
    assert result.entries == host.entries
    assert {n: result.links[n] for n in host.links} == host.links
    assert result.wanted == host.wanted
    assert converge(host, result) == ()


@given(hosts, mirrors, st.data())
def test_a_killed_convergence_converges_when_it_is_repeated(
    host: Listing, mirror: Listing, data: st.DataObject
) -> None:
    steps = converge(host, mirror)
    halfway = walk(host, mirror, steps[: data.draw(st.integers(0, len(steps)))])
    result = walk(host, halfway, converge(host, halfway))
    assert result.entries == host.entries
    assert {n: result.links[n] for n in host.links} == host.links


@given(hosts, mirrors)
def test_a_release_that_is_in_place_is_never_touched(host: Listing, mirror: Listing) -> None:
    right = {n for n, seal in mirror.entries.items() if seal and host.entries.get(n) == seal}
    touched: set[str] = set()
    for step in converge(host, mirror):
        match step:
            case Move(old, new):
                touched |= {old, new}
            case Remove(name) | Put(_, name):
                touched.add(name)
    assert not right & touched


SWITCHED: Mapping[str, bytes | None] = {
    "blue": b"three",
    "green": b"two",
    ".hostsync-evicted-1": b"one",
}


@pytest.mark.parametrize("links_of", ["before", "after"])
def test_a_switch_copies_nothing_into_a_mirror_that_was_staged(links_of: str) -> None:
    mirror = Listing(
        entries={"blue": b"one", "green": b"two", ".hostsync-staging-1": b"three"},
        links={"current": "green", "last-good": "blue"},
        wanted=b"two",
    )
    host = Listing(
        entries=SWITCHED,
        links={"current": "green", "last-good": "blue"}
        if links_of == "before"
        else {"current": "blue", "last-good": "green"},
        wanted=b"two" if links_of == "before" else b"three",
    )
    steps = converge(host, mirror)
    assert not [step for step in steps if isinstance(step, (Put, Remove))]
    assert walk(host, mirror, steps).entries == SWITCHED


def test_a_release_of_the_host_without_a_seal_is_not_mirrored() -> None:
    host = Listing(entries={"blue": None, "green": b"two"}, links={"current": "green"})
    mirror = Listing(entries={}, links={})
    assert walk(host, mirror, converge(host, mirror)).entries == {"green": b"two"}
