"""Evidence that solutions give about each other's steps, computed by hand."""

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
    count_step_agreement,
    repeats_and_departs,
)
from mclabel.labeling.estimators.trace.chain import infer_beliefs
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.trace.fit import fit_rates
from mclabel.labeling.estimators.trace.rates import uninformed_rates


def path(keys: str, outcome: Outcome, number: int = 0, *, sampled: bool = True) -> SolutionPath:
    """Return a solution with one letter per step.

    A capital letter is a wrong intermediate answer, and `-` is a step without content.
    """
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
    """The solution errs at x, states an answer, restarts, and then avoids the error at x."""
    mine = path("abxyW-abcdz", Outcome.RIGHT)
    right, wrong = path("abcdz", Outcome.RIGHT, 1), path("abxyz", Outcome.WRONG, 2)
    chosen = path("abcdz", Outcome.RIGHT, 3, sampled=False)
    found = count_step_agreement([mine, right, wrong, chosen], [mine, right, wrong, chosen])
    ways = [one.index(1) if 1 in one else None for one in seen(found, "way")]
    # The answer, the step without content and the last step are not compared.
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
    found = count_step_agreement([path("abab", Outcome.RIGHT)], [path("abab", Outcome.RIGHT)] * 2)
    assert [np.argmax(one) for one in seen(found, "way")[:3]] == [FIRST, FIRST, BACK]
    # For two copies, each is a sample of the other.
    assert seen(found, "held by right")[:2] == [(1, 0), (1, 0)]


def test_a_rollout_counts_up_to_where_it_leaves() -> None:
    mine = path("abcde", Outcome.WRONG)
    found = count_step_agreement([mine], [mine])
    add_rollout(found, mine, 0, 1, content("bcxe"))
    add_rollout(found, mine, 0, 2, content("c"))
    assert seen(found, "rollouts") == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 0)]


def test_a_completion_leaves_the_way_of_what_it_continues() -> None:
    """Intermediate answers and words are ignored, and a restart is not a departure."""
    a, b, c, d = content("abcd")
    before = [a, b, c]
    assert not repeats_and_departs(before, [d, "numbers 9", "words check", a, b, c, d])
    assert repeats_and_departs(before, [d, "numbers 9", "words check", a, b, d])
    assert not repeats_and_departs(before, [d, a])


def test_where_solutions_part_from_the_others_they_are_wrong() -> None:
    """Without rollouts, a rare step is the first error; where all solutions agree, no step is."""
    paths = [path("abcdef", Outcome.RIGHT, n) for n in range(5)]
    paths.append(path("abxyzv", Outcome.WRONG, 6))
    estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
    estimator.record(
        RecordedRollout(prefix=601, outcome=Outcome.RIGHT, step_keys=tuple(content("bc")))
    )
    *right, wrong = estimator.judge([Counts()] * 1000)
    assert wrong.first_error == 2 and wrong.is_decided
    assert {one.first_error for one in right} == {None}


def test_chances_are_less_sure_where_the_same_solutions_are_asked_at_each_step() -> None:
    for number, paths in enumerate(
        (
            [path("abcdef", Outcome.WRONG), path("abxdef", Outcome.RIGHT, 1)],
            [path("abcdef", Outcome.WRONG)],  # no other solution to compare with
        )
    ):
        estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
        shown = estimator.evidence()
        chances = infer_beliefs(shown.evidence, uninformed_rates(shown.completers).classes[POOLED])
        expected = chances.first_error[:, 0] ** (1.0 if number else 0.5)
        assert estimator.judge([Counts()] * 1000)[0].posterior == pytest.approx(
            expected / expected.sum()
        )


@pytest.mark.slow
def test_hundreds_of_solutions_and_of_completions_stay_numbers() -> None:
    """500 solutions share their steps, with 8 completions each and 1,024 completions of one step.

    The products of their chances are far below the smallest float, and the products of their
    numbers are above the largest.
    """
    ends = (Outcome.RIGHT, Outcome.WRONG)
    paths = [path("abcz", ends[n % 2], n) for n in range(500)]
    estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
    asked = [(n, ends[n % 2]) for n in range(500) for _ in range(8)]
    asked += [(0, ends[n % 2]) for n in range(1016)]
    for n, end in asked:
        estimator.record(
            RecordedRollout(prefix=paths[n].prefixes[0], outcome=end, is_requested=False)
        )
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        judged = estimator.judge([Counts()] * 50_000)
        fitted = fit_rates({"": [estimator.evidence()]})
    # A step that all solutions share is not an error, so only the last step can be wrong.
    assert [one.first_error for one in judged] == [None, 3] * 250
    assert all(np.isfinite(one.moves).all() for one in fitted.classes.values())
