"""What solutions show of one another's steps, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import ProblemPaths, RecordedRollout, SolutionPath
from mclabel.labeling.estimators.posterior.priors import POOLED
from mclabel.labeling.estimators.trace.agreement import (
    AGAIN,
    BACK,
    FIRST,
    OTHERWISE,
    add_rollout,
    compare_solutions,
    leaves_its_way,
)
from mclabel.labeling.estimators.trace.chain import infer
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.trace.fit import fit_rates
from mclabel.labeling.estimators.trace.rates import wide_rates


def path(keys: str, outcome: Outcome, number: int = 0, *, sampled: bool = True) -> SolutionPath:
    """A solution of one letter a step; a capital commits to an answer, and `-` says nothing."""
    names = content(keys)
    prefixes = tuple(100 * number + n for n in range(1, len(keys)))
    answers = tuple(Outcome.WRONG if key.isupper() else None for key in keys)
    return SolutionPath(
        prefixes=prefixes,
        outcome=outcome,
        sampled=sampled,
        step_keys=tuple(names),
        commitments=answers,
    )


def content(keys: str) -> list[str]:
    return ["numbers 9" if key == "-" else f"numbers 1 {ord(key)}" for key in keys]


def seen(found: dict[str, np.ndarray], what: str, chain: int = 0) -> list[tuple[int, ...]]:
    return [tuple(int(x) for x in one) for one in found[what][:, :, chain]]


def test_a_solution_that_goes_over_its_steps_again() -> None:
    """It goes wrong at x, begins again behind an answer, and goes otherwise where it went wrong."""
    mine = path("abxyW-abcdz", Outcome.RIGHT)
    right, wrong = path("abcdz", Outcome.RIGHT, 1), path("abxyz", Outcome.WRONG, 2)
    chosen = path("abcdz", Outcome.RIGHT, 3, sampled=False)
    found = compare_solutions([mine, right, wrong, chosen], [mine, right, wrong, chosen])
    ways = [one.index(1) if 1 in one else None for one in seen(found, "way")]
    # The answer, words, and the last step, which the outcome knows, are not compared.
    assert ways == [FIRST, FIRST, FIRST, FIRST, None, None, BACK, AGAIN, OTHERWISE, FIRST, None]
    none = (0, 0)
    new = [0, 1, 2, 3, 8, 9]
    held = {what: seen(found, what) for what in ("held by right", "held by wrong")}
    assert [held["held by right"][n] for n in new] == [(1, 0)] * 2 + [(0, 1)] * 2 + [(1, 0)] * 2
    assert [held["held by wrong"][n] for n in new] == [(1, 0)] * 4 + [(0, 1)] * 2
    assert all(held["held by right"][n] == none for n in range(11) if n not in new)
    follows = seen(found, "follows")
    assert follows[1:4] == [(2, 0), (1, 1), (1, 0)] and follows[9] == (1, 0)
    assert seen(found, "turns to")[8] == (1, 1) and seen(found, "turns from")[8] == (1, 1)
    assert sum(map(sum, seen(found, "turns to"))) == 2


def test_a_solution_alone_is_compared_with_itself_only() -> None:
    found = compare_solutions([path("abab", Outcome.RIGHT)], [path("abab", Outcome.RIGHT)] * 2)
    assert [np.argmax(one) for one in seen(found, "way")[:3]] == [FIRST, FIRST, BACK]
    # Of two copies one is a sample of the other.
    assert seen(found, "held by right")[:2] == [(1, 0), (1, 0)]


def test_a_rollout_counts_up_to_where_it_leaves() -> None:
    mine = path("abcde", Outcome.WRONG)
    found = compare_solutions([mine], [mine])
    add_rollout(found, mine, 0, 1, content("bcxe"))
    add_rollout(found, mine, 0, 2, content("c"))
    assert seen(found, "rollouts") == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 0)]


def test_a_completion_leaves_the_way_of_what_it_continues() -> None:
    """Answers and words lie between, and to begin again is no other way."""
    a, b, c, d = content("abcd")
    before = [a, b, c]
    assert not leaves_its_way(before, [d, "numbers 9", "words check", a, b, c, d])
    assert leaves_its_way(before, [d, "numbers 9", "words check", a, b, d])
    assert not leaves_its_way(before, [d, a])


def test_where_solutions_part_from_the_others_they_are_wrong() -> None:
    """Without a rollout: one that few take is the error, and none where all agree."""
    paths = [path("abcdef", Outcome.RIGHT, n) for n in range(5)]
    paths.append(path("abxyzv", Outcome.WRONG, 6))
    estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
    keys = tuple(content("bc"))
    estimator.record(RecordedRollout(prefix=601, outcome=Outcome.RIGHT, step_keys=keys))
    *right, wrong = estimator.judge([Counts()] * 1000)
    assert wrong.first_error == 2 and wrong.is_decided
    assert {one.first_error for one in right} == {None}


def test_chances_are_less_sure_where_the_same_solutions_are_asked_at_each_step() -> None:
    for number, paths in enumerate(
        (
            [path("abcdef", Outcome.WRONG), path("abxdef", Outcome.RIGHT, 1)],
            [path("abcdef", Outcome.WRONG)],  # asks nobody
        )
    ):
        estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
        shown = estimator.evidence()
        chances = infer(shown.evidence, wide_rates(shown.completers).classes[POOLED])
        expected = chances.first_error[:, 0] ** (1.0 if number else 0.5)
        found = estimator.judge([Counts()] * 1000)[0].posterior
        assert found == pytest.approx(expected / expected.sum())


@pytest.mark.slow
def test_hundreds_of_solutions_and_of_completions_stay_numbers() -> None:
    """500 solutions hold the same steps, with 8 completions of each, and 1,024 of one.

    The products of their chances are far below the least float, those of their numbers above the
    greatest.
    """
    ends = (Outcome.RIGHT, Outcome.WRONG)
    paths = [path("abcz", ends[n % 2], n) for n in range(500)]
    estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
    asked = [(n, ends[n % 2]) for n in range(500) for _ in range(8)]
    asked += [(0, ends[n % 2]) for n in range(1016)]
    for n, end in asked:
        prefix = paths[n].prefixes[0]
        estimator.record(RecordedRollout(prefix=prefix, outcome=end, asked=False))
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        judged = estimator.judge([Counts()] * 50_000)
        fitted = fit_rates({"": [estimator.evidence()]})
    # What all hold is no error, so that it can only be at the end.
    assert [one.first_error for one in judged] == [None, 3] * 250
    assert all(np.isfinite(one.moves).all() for one in fitted.classes.values())
