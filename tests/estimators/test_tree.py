"""OmegaPRM's quantities on a tree that is computed by hand."""

from __future__ import annotations

import pytest

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import RecordedRollout, SolutionPath
from mclabel.labeling.estimators.tree import SearchCandidate
from tests.support.estimating import make

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG


def ended(
    prefix: int, outcome: Outcome, path: tuple[int, ...] = (), tokens: int = 50
) -> RecordedRollout:
    return RecordedRollout(prefix=prefix, outcome=outcome, path=path, num_tokens=tokens)


def test_selection_and_binary_search_on_a_hand_made_tree() -> None:
    # One solution is right and one is wrong; the wrong one has five steps and 100 tokens.
    paths = [
        SolutionPath(prefixes=(1, 2, 3, 4), outcome=WRONG, step_tokens=(20,) * 5),
        SolutionPath(prefixes=(5,), outcome=RIGHT, step_tokens=(20, 20)),
    ]
    tree = make("tree", paths, rollouts=2, searches=2)
    (given,) = tree.candidates
    # MC(root) = 1/2, so Q = .5 ** .5 * .9 ** (100 / 500) = .7071068 * .9791484; no visit yet.
    assert tree.score(given) == pytest.approx(0.6923624, abs=1e-6)

    # Steps 0..4; bracket (-1, 4): the middle is step 1, prefix 2.
    assert tree.wanted() == [2, 2]
    assert tree.wanted() == []  # both rollouts are pending
    tree.record(ended(2, RIGHT, (6,), tokens=60))
    tree.record(ended(2, WRONG, (7, 8), tokens=60))
    # MC(2) = 1/2 > 0: the error is later. Bracket (1, 4), the middle is step 2, prefix 3.
    assert tree.wanted() == [3, 3]
    tree.record(ended(3, WRONG, (9,)))
    tree.record(ended(3, WRONG))
    # MC(3) = 0, so the first error is step 2. The only visit so far is one of the problem alone.
    assert tree.states[0].visits == 1
    ours = SearchCandidate(2, (7, 8), 60, is_given_solution=False)
    lost = SearchCandidate(3, (9,), 50, is_given_solution=False)
    # .5 ** .5 * .9 ** .12 + .125 * sqrt(1) / (1 + 0)
    assert tree.score(ours) == pytest.approx(0.7071068 * 0.9874363 + 0.125, abs=1e-6)
    # The second search takes the wrong rollout of prefix 2. The rollout of prefix 3, where MC is 0,
    # is not a candidate. The bracket of its steps is (-1, 2), so the middle is its first step,
    # prefix 7.
    assert lost in tree.candidates
    assert tree.wanted() == [7, 7]
    assert tree.states[2].visits == 1
    tree.record(ended(7, WRONG))
    tree.record(ended(7, WRONG))
    assert tree.wanted() == []  # both allowed searches are done
    counts = [Counts()] * 10
    counts[2] = Counts(num_right=1, num_wrong=1)
    counts[3] = Counts(num_wrong=2)
    wrong, right = tree.judge(counts)
    assert wrong.hard == (True, True, False, False, False)
    assert wrong.first_error == 2
    assert wrong.sources == ("implied", "fixed", "fixed", "implied", "outcome")
    assert wrong.estimates[1].value == 0.5
    assert right.hard == (True, True) and right.first_error is None


def test_steps_behind_a_probe_without_a_verdict_are_not_taken_for_wrong() -> None:
    path = SolutionPath(prefixes=(1, 2, 3, 4), outcome=WRONG, step_tokens=(20,) * 5)
    for lost, hard in ((None, None), (4, False)):  # whether a later step is known to be wrong
        paths = [path]
        if lost is not None:  # known from an earlier search of another solution
            paths.append(SolutionPath(prefixes=(4, 5), outcome=WRONG, step_tokens=(1, 1, 1)))
        tree = make("tree", paths, rollouts=1, searches=0)
        counts = [Counts()] * 6
        while wanted := tree.wanted():
            (prefix,) = wanted
            outcome = {1: RIGHT, 4: WRONG}.get(prefix, Outcome.UNGRADED)
            counts[prefix] = Counts().plus(outcome)
            tree.record(ended(prefix, outcome))
        found = tree.judge(counts)[0]
        # The binary search over steps 0 to 4 leaves step 1 without a verdict; step 0 recovers.
        assert found.hard == (True, None, None, hard, False)
        assert found.first_error is None


def test_a_state_is_probed_once_for_all_rollouts_through_it() -> None:
    paths = [
        SolutionPath(prefixes=(1, 2, 3), outcome=WRONG),
        SolutionPath(prefixes=(1, 2, 4), outcome=WRONG),
    ]
    tree = make("tree", paths, rollouts=1, searches=0)
    asked: list[int] = []
    while wanted := tree.wanted():
        asked += wanted
        for prefix in wanted:
            tree.record(ended(prefix, RIGHT if prefix == 2 else WRONG))
    assert asked == [2, 4, 3] or asked == [2, 3, 4]
    assert [j.first_error for j in tree.judge([Counts()] * 5)] == [2, 2]
