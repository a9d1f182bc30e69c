"""Board, carrier and crew: nothing is lost between threads, and no thread falls unnoticed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hostsync.activation import switch
from hostsync.activation.stage import Options
from hostsync.daemon import Daemon
from hostsync.errors import Busy, DiskError
from hostsync.operations.board import Board
from hostsync.operations.carrier import Carrier
from hostsync.operations.crew import Crew
from hostsync.operations.demand import Demand, Reboot, Say
from hostsync.operations.operation import Operation
from tests.hostsync.world import Killed, Time, World
from tests.operations.rig import killed_once_recorded
from tests.operations.specimens import an_operation


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once it holds; another thread is about to bring that about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


PATIENCE = 10.0
"""Seconds after which a thread that was to come counts as lost."""


def test_news_from_before_the_wait_ends_it_at_once() -> None:
    board = Board()
    for change in (
        board.nudge,
        lambda: board.replace("s", [an_operation("a")]),
        lambda: board.put("s", an_operation("b")),
        lambda: board.remove("s", "uid-b"),
    ):
        change()
        board.wait(None)


def test_what_is_no_news_wakes_nobody() -> None:
    board = Board()
    board.put("s", an_operation("a"))
    board.wait(None)
    board.remove("s", "uid-unknown")
    board.renew(an_operation("a", version="8"))
    board.forget("uid-unknown")
    before = time.monotonic()
    board.wait(0.02)
    assert time.monotonic() - before >= 0.02
    assert [each.version for each in board.operations()] == ["8"]


def test_no_wake_up_is_lost_between_threads() -> None:
    board, seen, count = Board(), set[str](), 200
    done = threading.Event()

    def read() -> None:
        while len(seen) < count:
            board.wait(None)
            seen.update(each.name for each in board.operations())
        done.set()

    def write(first: int) -> None:
        for number in range(first, count, 4):
            board.put(f"s{first}", an_operation(f"{number}"))

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    assert done.wait(PATIENCE)
    for thread in (reader, *writers):
        thread.join(PATIENCE)
    assert len(board.operations()) == count


def test_an_operation_in_two_scopes_is_one_and_goes_with_the_last() -> None:
    board = Board()
    board.put("mine", an_operation())
    board.put("all", an_operation(version="8"))
    assert len(board.operations()) == 1
    board.replace("all", ())
    assert len(board.operations()) == 1
    board.forget("uid-op")
    assert board.operations() == ()


def test_an_answer_does_not_bring_back_what_has_gone() -> None:
    board = Board()
    board.renew(an_operation())
    assert board.operations() == ()


class Work:
    """What a carrier is to do, as a test decides; and whom it tells."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.threads: list[int] = []
        self.nudges = 0
        self.trouble: Exception | None = None
        self.time = Time()
        self.carrier = Carrier(self.act, self.nudge, self.time)
        self.moving_meanwhile: list[dict[str, str]] = []

    def act(self, operation: Operation, demand: Demand, say: Say) -> None:
        say("half-way")
        self.moving_meanwhile.append(self.carrier.moving)
        self.done.append(operation.name)
        self.threads.append(threading.get_ident())
        if self.trouble is not None:
            raise self.trouble

    def nudge(self) -> None:
        self.nudges += 1


def test_a_carrier_says_how_far_it_has_come_and_that_it_is_done() -> None:
    work = Work()
    work.carrier.begin(an_operation(), Reboot())
    assert work.carrier.moving == {"uid-op": "begun"}
    work.carrier.turn(an_operation(), Reboot())
    assert work.moving_meanwhile == [{"uid-op": "half-way"}]
    assert (work.carrier.moving, work.carrier.refusal, work.nudges) == ({}, None, 2)


@pytest.mark.parametrize(
    ("trouble", "word"),
    [
        (Busy("an upgrade holds the host", remedy="wait"), "an upgrade holds the host"),
        (DiskError("no space", remedy="make some"), "no space; make some"),
    ],
)
def test_one_that_could_not_be_begun_or_broke_off_leaves_its_reason(
    trouble: Exception, word: str
) -> None:
    work = Work()
    work.trouble = trouble
    work.time.now = 77.0
    work.carrier.begin(an_operation(), Reboot())
    work.carrier.turn(an_operation(), Reboot())
    refusal = work.carrier.refusal
    assert refusal is not None
    assert (refusal.uid, refusal.why, refusal.at) == ("uid-op", word, 77.0)
    assert work.carrier.moving == {}
    work.carrier.begin(an_operation(), Reboot())
    assert work.carrier.refusal is None


def test_what_is_begun_is_carried_out_in_that_order_by_one_thread() -> None:
    work = Work()
    crew = Crew({"carrier": work.carrier.run})
    for name in ("a", "b"):
        work.carrier.begin(an_operation(name), Reboot())
    crew.start()
    for name in ("c", "d"):
        work.carrier.begin(an_operation(name), Reboot())
    wait_for(lambda: not work.carrier.moving)
    assert work.done == ["a", "b", "c", "d"]
    assert len(set(work.threads)) == 1
    crew.check()


@pytest.mark.parametrize("fault", [ValueError("a fault"), SystemExit(3), MemoryError()])
def test_what_fells_a_task_is_raised_by_a_check(fault: BaseException) -> None:
    def fall() -> None:
        raise fault

    def stay() -> None:
        threading.Event().wait()

    def is_noticed() -> bool:
        crew.check()
        return False

    crew = Crew({"falls": fall, "stays": stay})
    crew.start()
    with pytest.raises(type(fault)) as caught:
        wait_for(is_noticed)
    assert caught.value is fault


def test_a_task_that_ends_by_itself_is_no_trouble() -> None:
    done = threading.Event()
    crew = Crew({"short": done.set})
    crew.start()
    assert done.wait(PATIENCE)
    crew.check()


@pytest.fixture
def handlers() -> Iterator[None]:
    """A daemon takes the process's signals for itself."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_orders_are_taken_once_what_a_record_held_is_settled_and_a_fallen_task_ends_the_daemon(
    world: World, handlers: None
) -> None:
    with killed_once_recorded(world), pytest.raises(Killed):
        switch.upgrade(world.host(), world.candidate("1.1.0"), Options())
    assert world.host().record.load() is not None
    seen: list[object] = []

    def task() -> None:
        seen.append(world.host().record.load())
        raise ValueError("a fault")

    def wait_for_start(seconds: float) -> str | None:
        time.sleep(0.001)
        return None

    daemon = Daemon((world.host(),), wait_for_start, seen.append, None, Crew({"desk": task}))
    with pytest.raises(ValueError, match="a fault"):
        daemon.run()
    assert str(seen[0]).startswith("READY=1")
    assert seen[1:] == [None]
