"""Votes of a critic: as few as are needed to decide, in any order, up to the limit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.judge.critic import Vote, VoteCounter, VoteResult

U = "unknown"
"""An unknown vote in a list of first errors."""


def _make_vote(first_error: int | str | None) -> Vote:
    if isinstance(first_error, str):
        return Vote(None, is_known=False, reason="no box")
    return Vote(first_error, is_known=True)


def _list_rounds(votes: VoteCounter, answers: list[int | str | None]) -> list[tuple[int, bool]]:
    """Return the size of each round of requested votes, and whether the round is a retry."""
    rest, rounds = list(answers), []
    while votes.count_votes_needed():
        rounds.append((votes.count_votes_needed(), votes.is_retry_round))
        for _ in range(votes.count_votes_needed()):
            votes.record(_make_vote(rest.pop(0)))
    assert not rest
    return rounds


ONE = (1, False)


@pytest.mark.parametrize(
    ("answers", "rounds", "counts", "num_unknown", "verdict"),
    [
        ([2, 2, 2], [(3, False)], {2: 3}, 0, 2),
        ([None] * 3, [(3, False)], {None: 3}, 0, None),
        ([2, 2, None, 2, 2, 2], [(3, False), (3, False)], {None: 1, 2: 5}, 0, 2),
        (
            [2, 2, None, 2, None, 2, 2],
            [(3, False), (3, False), ONE],
            {None: 2, 2: 5},
            0,
            2,
        ),
        (
            [0, 1, 2, 0, 0, 1, 1, 0],
            [(3, False), (3, False), ONE, ONE],
            {0: 4, 1: 3, 2: 1},
            0,
            0,
        ),
        ([0, 1, 2, 0, 0, 0], [(3, False), (3, False)], {0: 4, 1: 1, 2: 1}, 0, 0),
        (
            [0, 1, 1, 0, 0, 1, 0, 1],
            [(3, False), (3, False), (2, False)],
            {0: 4, 1: 4},
            0,
            "undecided",
        ),
        ([3, U, 3, 3], [(3, False), (1, True)], {3: 3}, 0, 3),
        ([3, U, 3, U, 3], [(3, False), (1, True), ONE], {3: 3}, 1, 3),
        (
            [U] * 16,
            [(3, False), (3, True), (3, False), (3, True), (2, False), (2, True)],
            {},
            8,
            "undecided",
        ),
    ],
)
def test_rounds_by_hand(
    answers: list[int | str | None],
    rounds: list[tuple[int, bool]],
    counts: dict[int | None, int],
    num_unknown: int,
    verdict: int | str | None,
) -> None:
    votes = VoteCounter(min_votes=3, max_votes=8)
    assert _list_rounds(votes, answers) == rounds
    is_decided = verdict != "undecided"
    assert votes.result() == VoteResult(
        counts, num_unknown, is_decided, verdict if is_decided else None
    )
    assert list(votes.result().counts) == list(counts)
    with pytest.raises(ValueError, match="no vote was requested"):
        votes.record(_make_vote(0))


ANSWERS = st.sampled_from([None, 0, 1, U])


@given(
    st.integers(1, 5),
    st.integers(0, 6),
    st.lists(ANSWERS, min_size=24, max_size=24),
    st.randoms(use_true_random=False),
)
def test_votes_end_and_are_right_whatever_is_answered(
    least: int, more: int, answers: list[int | str | None], order: random.Random
) -> None:
    first, second = VoteCounter(least, least + more), VoteCounter(least, least + more)
    fresh, rest = 0, list(answers)
    while num := first.count_votes_needed():
        assert (second.count_votes_needed(), second.is_retry_round) == (num, first.is_retry_round)
        fresh += 0 if first.is_retry_round else num
        batch, rest = rest[:num], rest[num:]
        for answer in batch:
            assert not first.result().is_decided
            first.record(_make_vote(answer))
        order.shuffle(batch)
        for answer in batch:
            second.record(_make_vote(answer))
    result = first.result()
    assert result == second.result() and fresh <= least + more
    num_known = sum(result.counts.values())
    assert num_known + result.num_unknown == fresh
    ranked = [*sorted(result.counts.values(), reverse=True), 0, 0]
    assert result.is_decided == (num_known >= least and ranked[0] > ranked[1])
    if result.is_decided:
        assert result.counts[result.first_error] == ranked[0]
        assert ranked[1] == 0 or ranked[0] > ranked[1] + (least + more - fresh)
    else:
        assert fresh == least + more and result.first_error is None
