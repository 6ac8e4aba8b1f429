"""Best-of-N compared with literals by hand and with brute force over all subsets."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.evaluate.best_of_n.choosing import (
    ProblemSamples,
    compute_argmax_accuracy,
    compute_pair_accuracy,
    compute_pass_probability,
    compute_vote_accuracy,
)
from mclabel.evaluate.best_of_n.figures import measure_best_of_n


def problem(
    keys: list[str | None], right: list[bool], scores: list[float] | None = None
) -> ProblemSamples:
    values = tuple(scores or [0.0] * len(keys))
    return ProblemSamples(
        problem_id="p",
        answer_keys=tuple(keys),
        is_right=tuple(right),
        scores={"s": values},
        vote_weights={"s": values},
    )


def test_pass_at_n() -> None:
    assert compute_pass_probability(1, 1, 4) == pytest.approx(0.25)
    assert compute_pass_probability(2, 1, 4) == pytest.approx(0.5)  # 1 - C(3,2)/C(4,2) = 1 - 3/6
    assert compute_pass_probability(4, 1, 4) == 1
    assert compute_pass_probability(3, 0, 4) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.5, -math.inf]), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_argmax_is_the_mean_over_all_subsets(
    samples: list[tuple[float, bool]], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(samples)))
    means = []
    for subset in combinations(samples, size):
        best = max(score for score, _ in subset)
        among = [right for score, right in subset if score == best]
        means.append(sum(among) / len(among))
    scores, right = [s for s, _ in samples], [r for _, r in samples]
    assert compute_argmax_accuracy(scores, right, size) == pytest.approx(sum(means) / len(means))


def test_majority_and_weighted_vote() -> None:
    cases = [
        # 2 votes against 1; weights .3 against .9
        (["7", "7", "9", None], [True, True, False, False], [0.1, 0.2, 0.9, 0.9], 1.0, 0.0),
        (["7", "9"], [True, False], [0.6, 0.6], 0.5, 0.5),
        # Weights of zero cannot choose an answer that no sample has.
        (["7", "9"], [True, False], [0.0, 0.0], 0.5, 0.5),
        ([None, None], [False, False], None, 0.0, 0.0),
    ]
    for keys, right, scores, majority, vote in cases:
        assert compute_vote_accuracy(problem(keys, right, scores), len(keys), seed=0) == {
            "majority": majority,
            "vote:s": vote,
        }


def test_pair_accuracy() -> None:
    assert compute_pair_accuracy([0.9, 0.5, 0.5], [True, True, False]) == pytest.approx(0.75)
    assert math.isnan(compute_pair_accuracy([0.9, 0.5], [True, True]))


def test_the_whole_table() -> None:
    problems = [
        problem(["1", "2", "2", "1"], [True, False, False, True], [0.9, 0.2, 0.3, 0.8]),
        problem(["5", "5", "6", "6"], [False, False, True, True], [0.1, 0.2, 0.3, 0.4]),
        problem(["5", "5", "5", "6"], [False, False, False, True], [0.1, 0.2, 0.3, 0.4]),
    ]
    result = measure_best_of_n(problems)
    accuracy = result.accuracy
    assert (result.num_problems, result.num_samples) == (3, 4)
    assert list(accuracy) == ["random", "majority", "vote:s", "pass", "s"]
    assert list(accuracy["s"]) == [1, 2, 4]
    assert (
        (accuracy["s"][4].value, accuracy["majority"][4].value, accuracy["random"][2].value)
    ) == pytest.approx((1, 1 / 3, 5 / 12))
    # The differences by problem are 1/2, 1/2 (ties of the vote) and 1, so no resample gives 0.
    less = result.difference("s", "majority", 4)
    assert less is not None and result.difference("s", "s", 4) is None
    assert (less.value, less.low, less.high, less.p_value) == pytest.approx(
        (2 / 3, 0.5, 1, 2 / 1001)
    )
    assert result.pair_accuracy["s"].value == 1
    assert accuracy["s"][1].low <= 5 / 12 <= accuracy["s"][1].high  # type: ignore[operator]


def test_groups_and_fifths_by_pass_rate() -> None:
    problems = [
        replace(
            problem(["1", "2"], [i >= 5, i >= 5], [0.0, 1.0]),
            problem_id=str(i),
            groups={"level": "easy" if i >= 5 else "hard", "only": "one"},
        )
        for i in range(10)
    ]
    result = measure_best_of_n(problems)
    assert list(result.groups) == ["level", "pass rate"]
    assert {n: g.num_problems for n, g in result.groups["level"].items()} == {"easy": 5, "hard": 5}
    assert result.groups["level"]["easy"].accuracy["s"][2].value == 1
    assert result.groups["level"]["hard"].accuracy["pass"][2].value == 0
    assert {n: g.num_problems for n, g in result.groups["pass rate"].items()} == {
        "hardest fifth": 5,
        "third": 5,
    }


def test_a_scorer_that_prefers_a_wrong_answer_falls_with_n() -> None:
    figures = measure_best_of_n(
        [problem(["1", "1", "1", "2"], [True, True, True, False], [0.1, 0.2, 0.3, 0.9])] * 8
    ).over_optimisation["s"]
    assert (figures.best_size, figures.best, figures.last) == (1, 0.75, 0.0)
    assert (figures.fall.value, figures.fall.high) == (-0.75, -0.75)
    assert figures.fall.p_value == pytest.approx(2 / 1001)


def test_problems_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="the same number of samples of each"):
        measure_best_of_n([problem(["1"], [True]), problem(["1", "2"], [True, False])])
