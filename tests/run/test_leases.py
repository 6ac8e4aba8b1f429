"""The number of blocks that a worker is given: enough to keep its engine full, and no more."""

from __future__ import annotations

from collections import Counter

import pytest

from mclabel.core.errors import EngineError, RejectReason
from mclabel.core.records import Problem
from mclabel.labeling.inputs import ProblemItem
from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.leases import MAX_LEASES, LeaseBook, count_additional_leases
from mclabel.run.running import MAX_SHARED_LOSSES, Lease
from mclabel.run.task import Block, RunnerState


@pytest.mark.parametrize(
    ("held", "live", "waiting", "more"),
    [
        (0, 0, 0, 2),  # a new worker
        (1, 256, 5000, 1),  # never a single block: its tail would starve the engine
        (2, 256, 256, 0),  # the waiting requests already fill the engine once
        (2, 256, 5000, 0),
        (2, 100, 0, 2),  # at most twice as many blocks before the next look
        (4, 256, 128, 2),  # four blocks give 384 requests, so six give about 512
        (8, 0, 0, 8),  # between two batches of all its blocks
        (MAX_LEASES - 1, 10, 0, 1),
        (MAX_LEASES, 10, 0, 0),
    ],
)
def test_leases_follow_the_engine(held: int, live: int, waiting: int, more: int) -> None:
    assert (
        count_additional_leases(held, RunnerState(num_live=live, num_waiting=waiting, max_live=256))
        == more
    )


def test_an_engine_without_a_bound_holds_two_blocks() -> None:
    assert count_additional_leases(2, RunnerState(num_live=10)) == 0


@pytest.mark.parametrize(
    ("held", "ended", "more"),
    [
        (0, 2, 4),  # both blocks that it held have ended: blocks are short
        (3, 5, 7),
        (12, 5, 0),
        (1, 0, 1),
        (10, 60, MAX_LEASES - 10),
    ],
)
def test_a_worker_holds_twice_what_ends_between_two_looks(held: int, ended: int, more: int) -> None:
    assert count_additional_leases(held, RunnerState(), num_ended=ended) == more


def block(number: int) -> Block:
    return Block(id=f"b{number}", items=(item(f"p{number}"),), priority=number)


def item(name: str) -> ProblemItem:
    return ProblemItem(Problem(id=name, text="t", answer="1"))


def ids(leases: list[Lease]) -> list[str]:
    return [lease.block.id for lease in leases]


IDLE = RunnerState()
WORDS = LABEL_OUTPUTS.words


def test_every_block_is_leased_until_it_is_done_and_lost_ones_come_first() -> None:
    book = LeaseBook(map(block, range(5)), num_blocks=5, journaled={"b1"})
    first = book.lease_blocks("one", IDLE, num_workers=2)
    assert ids(first) == ["b0", "b1"]
    assert [lease.may_have_journals for lease in first] == [False, True]
    assert ids(book.lease_blocks("one", IDLE)) == []
    assert ids(book.lease_blocks("two", IDLE, num_workers=2)) == ["b2", "b3"]
    book.release("one", "b0", "gone")
    book.release("one", "b1", "gone")
    book.mark_done("two", "b2")
    again = book.lease_blocks("two", IDLE, num_workers=2)
    assert ids(again) == ["b0"] and again[0].may_have_journals
    assert ids(book.lease_blocks("one", IDLE, num_workers=2)) == ["b1", "b4"]
    assert not book.finished
    assert book.num_unfinished == 4
    for worker, name in [("two", "b3"), ("two", "b0"), ("one", "b1"), ("one", "b4")]:
        book.mark_done(worker, name)
    assert book.finished


def test_the_last_blocks_are_shared() -> None:
    """A worker that requests blocks more often than the others does not get their share."""
    book = LeaseBook(map(block, range(3)), num_blocks=3)
    assert ids(book.lease_blocks("one", IDLE, num_workers=2)) == ["b0", "b1"]
    assert book.lease_blocks("one", IDLE, num_workers=2, num_ended=8) == []
    assert ids(book.lease_blocks("two", IDLE, num_workers=2)) == ["b2"]
    for name in ("b0", "b1"):
        book.mark_done("one", name)
    assert book.lease_blocks("one", IDLE, num_workers=2) == []
    book.release("two", "b2", "gone")
    assert ids(book.lease_blocks("one", IDLE, num_workers=1)) == ["b2"]


def test_a_first_loss_or_a_preempted_node_changes_nothing_for_a_block() -> None:
    book = LeaseBook(map(block, range(2)), num_blocks=2)
    for counts in (False, False, False, True):
        first, second = book.lease_blocks("one", IDLE)
        for lease in (first, second):
            book.release("one", lease.block.id, "the node went away", may_be_cause=counts)


def make_big_block(number: int, count: int) -> Block:
    return Block(
        id=f"b{number}", items=tuple(item(f"p{number}.{i}") for i in range(count)), priority=number
    )


def run(book: LeaseBook, poison: set[str], workers: int = 2, steps: int = 1000) -> int:
    """Run a lease book on workers that some problems kill, and return the number of deaths.

    A worker holds two blocks, and all the blocks of a worker end at the same time.
    """
    deaths, held = 0, {worker: list[Lease]() for worker in range(workers)}
    losses: Counter[str] = Counter()
    for step in range(steps):
        if book.finished:
            assert not any(held.values())
            return deaths
        worker = step % workers
        held[worker] += book.lease_blocks(worker, IDLE, num_workers=workers)
        leases, held[worker] = held[worker], []
        suspects = [lease for lease in leases if losses[lease.block.id] >= MAX_SHARED_LOSSES]
        assert len(leases) == 1 or not suspects
        run_now = {
            p.id
            for lease in leases
            for p in lease.block.items
            if lease.only_item_id in (None, p.id) and p.id not in lease.set_aside
        }
        died = bool(run_now & poison)
        deaths += died
        for lease in leases:
            losses[lease.block.id] += died
            if died:
                book.release(worker, lease.block.id, "out of  memory\n" + "x" * 1000)
            else:
                if lease.only_item_id is None:
                    DONE[lease.block.id] = dict(lease.set_aside)
                book.mark_done(worker, lease.block.id)
    raise AssertionError("not finished")


DONE: dict[str, dict[str, RejectReason]] = {}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("poison", [set(), {"p2.1"}, {"p2.0", "p2.3"}, {"p0.3", "p5.0"}])
def test_problems_that_kill_their_engines_are_set_aside_and_no_others(
    workers: int, poison: set[str]
) -> None:
    DONE.clear()
    deaths = run(
        LeaseBook([make_big_block(i, 1 if i == 5 else 4) for i in range(6)], num_blocks=6),
        poison,
        workers,
    )
    assert sorted(DONE) == [f"b{i}" for i in range(6)]
    assert {name for reasons in DONE.values() for name in reasons} == poison
    assert all(name[1] == block_id[1] for block_id, reasons in DONE.items() for name in reasons)
    for reasons in DONE.values():
        for why in reasons.values():
            assert why.reason == "kills_engine"
            assert why.detail.startswith("out of memory xxx") and len(why.detail) == 500
    assert deaths <= 4 * len(poison)


def test_a_death_that_counts_not_sets_nothing_aside() -> None:
    book = LeaseBook([make_big_block(0, 1)], num_blocks=1)
    for counts in (True, True, True, False, False):
        (lease,) = book.lease_blocks("one", IDLE)
        book.release("one", "b0", "gone", may_be_cause=counts)
    (lease,) = book.lease_blocks("one", IDLE)
    assert (
        lease.only_item_id == "p0.0"
        and not lease.set_aside
        and book.lease_blocks("one", IDLE) == []
    )
    book.release("one", "b0", "gone")
    (lease,) = book.lease_blocks("one", IDLE)
    assert lease.only_item_id is None and set(lease.set_aside) == {"p0.0"}


def test_engines_that_die_whatever_they_are_given_stop_the_job() -> None:
    every = {f"p{i}.{j}" for i in range(6) for j in range(4)}
    with pytest.raises(EngineError, match=r"(?s)on each of 3 consecutive problems.*session_latest"):
        run(LeaseBook([make_big_block(i, 4) for i in range(6)], num_blocks=6, words=WORDS), every)


def test_a_block_that_dies_whole_and_passes_in_parts_stops_the_job() -> None:
    book = LeaseBook([make_big_block(0, 2)], num_blocks=1, words=WORDS)
    with pytest.raises(EngineError, match=r"block b0 made its engine die 5 times.*block_problems"):
        for _ in range(100):
            for lease in book.lease_blocks("one", IDLE):
                if lease.only_item_id is None:
                    book.release("one", "b0", "out of memory")
                else:
                    book.mark_done("one", "b0")


def test_while_a_block_is_alone_other_workers_go_on() -> None:
    book = LeaseBook(map(block, range(40)), num_blocks=40)
    for _ in range(2):
        for lease in book.lease_blocks("one", IDLE):
            book.release("one", lease.block.id, "gone")
    assert ids(book.lease_blocks("one", IDLE)) == ["b0"] and book.lease_blocks("one", IDLE) == []
    book.mark_done("one", "b0")
    assert ids(book.lease_blocks("two", IDLE, num_workers=2)) == ["b1"]
    assert book.lease_blocks("two", IDLE, num_workers=2) == []
    for _ in range(3):
        leases = book.lease_blocks("one", IDLE, num_workers=2)
        assert len(leases) == 2
        for lease in leases:
            book.mark_done("one", lease.block.id)


def test_a_closed_book_leases_nothing() -> None:
    book = LeaseBook(map(block, range(3)), num_blocks=3)
    book.close()
    assert book.lease_blocks("one", IDLE) == [] and not book.finished
