"""How many blocks a worker is given: enough to keep its engine full, no more."""

from __future__ import annotations

import pytest

from mclabel.errors import EngineError
from mclabel.labeling.leases import MAX_LEASES, Lease, LeaseBook, num_more_leases
from mclabel.labeling.worker import Block
from mclabel.policy import EngineStats
from mclabel.records import Problem


@pytest.mark.parametrize(
    ("held", "live", "waiting", "more"),
    [
        (0, 0, 0, 2),  # a new worker
        (1, 256, 5000, 1),  # never one alone: its tail would starve the engine
        (2, 256, 256, 0),  # one engineful waits
        (2, 256, 5000, 0),
        (2, 100, 0, 2),  # at most twice as many before looking again
        (4, 256, 128, 2),  # 384 by four blocks: 512 by six
        (8, 0, 0, 8),  # between two batches of all its blocks
        (MAX_LEASES - 1, 10, 0, 1),
        (MAX_LEASES, 10, 0, 0),
    ],
)
def test_leases_follow_the_engine(held: int, live: int, waiting: int, more: int) -> None:
    stats = EngineStats(num_live=live, num_waiting=waiting, max_live=256)
    assert num_more_leases(held, stats) == more


def test_an_engine_without_a_bound_holds_two_blocks() -> None:
    assert num_more_leases(2, EngineStats(num_live=10)) == 0


def block(number: int) -> Block:
    problem = Problem(id=f"p{number}", text="t", answer="1")
    return Block(id=f"b{number}", problems=(problem,), given={}, priority=number)


def ids(leases: list[Lease]) -> list[str]:
    return [lease.block.id for lease in leases]


IDLE = EngineStats()


def test_every_block_is_leased_until_it_is_done_and_lost_ones_come_first() -> None:
    book = LeaseBook(map(block, range(5)), num_blocks=5, journaled={"b1"})
    first = book.take("one", IDLE, num_workers=2)
    assert ids(first) == ["b0", "b1"]
    assert [lease.replay for lease in first] == [False, True]
    assert ids(book.take("one", IDLE)) == []
    assert ids(book.take("two", IDLE, num_workers=2)) == ["b2", "b3"]
    book.lost("one", "b0", "gone")
    book.lost("one", "b1", "gone")
    book.done("two", "b2")
    again = book.take("two", IDLE, num_workers=2)
    assert ids(again) == ["b0"] and again[0].replay
    assert ids(book.take("one", IDLE, num_workers=2)) == ["b1"]
    assert ids(book.take("one", IDLE, num_workers=2)) == ["b4"]
    assert not book.finished
    assert book.num_unfinished == 4
    for worker, name in [("two", "b3"), ("two", "b0"), ("one", "b1"), ("one", "b4")]:
        book.done(worker, name)
    assert book.finished
    assert book.held("one") == book.held("two") == 0


def test_the_last_blocks_are_shared() -> None:
    book = LeaseBook(map(block, range(2)), num_blocks=2)
    assert ids(book.take("one", IDLE, num_workers=2)) == ["b0"]
    assert ids(book.take("two", IDLE, num_workers=2)) == ["b1"]


def test_a_book_finds_itself_finished_without_being_asked_for_more() -> None:
    book = LeaseBook(map(block, range(2)), num_blocks=2)
    for lease in book.take("one", IDLE):
        book.done("one", lease.block.id)
    assert book.finished
    assert not LeaseBook(map(block, range(1)), num_blocks=1).finished
    assert LeaseBook([], num_blocks=0).finished


def test_a_block_that_kills_its_engines_stops_the_job_and_a_preempted_node_does_not() -> None:
    book = LeaseBook([block(7)], num_blocks=1)
    for _ in range(20):
        (lease,) = book.take("one", IDLE)
        book.lost("one", "b7", "the node went away", counts=False)
    with pytest.raises(EngineError, match=r"block b7 lost its engine 5 times \(problems p7\).*out"):
        for _ in range(5):
            (lease,) = book.take("one", IDLE)
            assert lease.replay
            book.lost("one", "b7", "out of memory")
