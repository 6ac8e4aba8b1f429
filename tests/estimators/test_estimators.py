"""Estimators driven with known answers, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import Estimator, Judgement, RecordedRollout, SolutionPath
from tests.support.estimating import make, settings_of

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG
TRUNCATED, UNGRADED = Outcome.TRUNCATED, Outcome.UNGRADED


def drive(
    estimator: Estimator,
    num_prefixes: int,
    outcome: Callable[[int, int], Outcome],
    order: Callable[[int], int] = lambda due: 0,
) -> tuple[list[Judgement], list[Counts]]:
    """Answer what an estimator asks for; `order` picks which due rollout arrives next."""
    counts = [Counts() for _ in range(num_prefixes)]
    asked = [0] * num_prefixes
    due: list[tuple[int, Outcome]] = []
    while True:
        for prefix in estimator.wanted():
            due.append((prefix, outcome(prefix, asked[prefix])))
            asked[prefix] += 1
        if not due:
            return estimator.judge(counts), counts
        prefix, result = due.pop(order(len(due)))
        counts[prefix] = counts[prefix].plus(result, 10)
        estimator.record(RecordedRollout(prefix=prefix, outcome=result, num_tokens=10))


def path(prefixes: Sequence[int], outcome: Outcome) -> SolutionPath:
    return SolutionPath(prefixes=tuple(prefixes), outcome=outcome)


def until(error: int) -> Callable[[int, int], Outcome]:
    """Prefixes before `error` always recover, the others never do."""
    return lambda prefix, index: RIGHT if prefix < error else WRONG


def test_fixed_rolls_out_every_distinct_prefix_once() -> None:
    paths = [path([1, 2, 3], WRONG), path([1, 4], RIGHT)]
    judgements, counts = drive(make("fixed", paths, rollouts=16), 5, until(3))
    assert [c.num_rollouts for c in counts] == [0, 16, 16, 16, 16]
    assert judgements[0].hard == (True, True, False, False)
    assert judgements[0].first_error == 2
    assert judgements[0].sources == ("fixed", "fixed", "fixed", "outcome")
    assert judgements[1].hard == (True, False, True)  # prefix 4 never recovers in `until(3)`


def test_fixed_rolls_out_the_bare_problem_on_demand() -> None:
    _, counts = drive(make("fixed", [path([1], RIGHT)], rollouts=2, root_rollouts=5), 2, until(9))
    assert [c.num_rollouts for c in counts] == [5, 2]


def test_fixed_gives_no_label_without_evidence() -> None:
    judgements, _ = drive(
        make("fixed", [path([1], UNGRADED)], rollouts=3), 2, lambda p, i: UNGRADED
    )
    assert judgements[0].hard == (None, None)
    assert judgements[0].first_error is None


@pytest.mark.parametrize("num_steps", range(1, 12))
def test_bisect_finds_every_first_error_in_a_logarithm_of_probes(num_steps: int) -> None:
    for error in range(num_steps):
        paths = [path(range(1, num_steps), WRONG)]
        estimator = make("bisect", paths, rollouts=8, batch=4)
        judgements, counts = drive(estimator, num_steps, until(error + 1))
        assert judgements[0].first_error == error
        assert judgements[0].hard == tuple(t < error for t in range(num_steps))
        probes = sum(c.num_rollouts > 0 for c in counts)
        assert probes <= (num_steps - 1).bit_length()


def test_bisect_stops_a_probe_at_its_first_success() -> None:
    estimator = make("bisect", [path([1, 2, 3], WRONG)], rollouts=16, batch=4)
    _, counts = drive(estimator, 4, until(9))
    # Probes prefixes 2 and 3 (steps 1 and 2), each with one batch that succeeds.
    assert [c.num_rollouts for c in counts] == [0, 0, 4, 4]


def test_bisect_gives_right_solutions_their_labels_for_free() -> None:
    judgements, counts = drive(make("bisect", [path([1, 2, 3], RIGHT)], rollouts=16), 4, until(0))
    assert sum(c.num_rollouts for c in counts) == 0
    assert judgements[0].hard == (True, True, True, True)
    assert judgements[0].sources == ("implied", "implied", "implied", "outcome")


def test_bisect_does_not_judge_a_solution_without_an_outcome() -> None:
    judgements, counts = drive(make("bisect", [path([1, 2], TRUNCATED)], rollouts=4), 3, until(0))
    assert sum(c.num_rollouts for c in counts) == 0
    assert judgements[0].hard == (None, None, None)


def test_bisect_shares_probes_between_solutions() -> None:
    paths = [path([1, 2, 3], WRONG), path([1, 2, 4], WRONG)]
    judgements, counts = drive(make("bisect", paths, rollouts=4, batch=4), 5, until(2))
    assert [j.first_error for j in judgements] == [1, 1]
    assert counts[2].num_rollouts == 4


def test_bisect_says_nothing_of_steps_it_could_not_see_past() -> None:
    def outcome(prefix: int, index: int) -> Outcome:
        return UNGRADED if prefix == 2 else until(2)(prefix, index)

    judgements, _ = drive(make("bisect", [path([1, 2, 3], WRONG)], rollouts=4), 4, outcome)
    assert judgements[0].hard == (True, None, None, False)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[SolutionPath], int]:
    """Up to four solutions that may share beginnings."""
    count = 1
    paths: list[SolutionPath] = []
    for _ in range(draw(st.integers(1, 4))):
        shared: tuple[int, ...] = ()
        if paths:
            other = draw(st.sampled_from(paths)).prefixes
            shared = other[: draw(st.integers(0, len(other)))]
        fresh = draw(st.integers(0, 6))
        prefixes = shared + tuple(range(count, count + fresh))
        count += fresh
        paths.append(path(prefixes, draw(st.sampled_from(list(Outcome)))))
    return paths, count


@given(
    problems(),
    st.sampled_from(["fixed", "first_error", "bisect", "posterior", "tree"]),
    st.randoms(use_true_random=False),
    st.integers(1, 9),
    st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_any_estimator_ends_within_its_cap_whatever_the_order(
    problem: tuple[list[SolutionPath], int], kind: str, rng, rollouts: int, batch: int
) -> None:
    paths, num_prefixes = problem
    table = [[rng.choice(list(Outcome)) for _ in range(rollouts)] for _ in range(num_prefixes)]
    sizes = {"rollouts": rollouts}
    if "batch" in type(settings_of(kind)).model_fields:
        sizes["batch"] = batch
    orders = [lambda due: 0, lambda due: due - 1, lambda due: rng.randrange(due)]
    results = []
    for order in orders:
        estimator = make(kind, paths, **sizes)
        results.append(drive(estimator, num_prefixes, lambda p, i: table[p][i], order))
        assert not estimator.wanted()  # it never asks after it is done
    for judgements, counts in results:
        assert all(c.num_rollouts <= rollouts for c in counts)
        for judgement, one in zip(judgements, paths, strict=True):
            assert one.num_steps == len(judgement.hard)
            assert one.num_steps == len(judgement.sources) == len(judgement.estimates)
            if judgement.first_error is not None:
                assert judgement.hard[judgement.first_error] is False
            if one.outcome is RIGHT and kind in ("bisect", "first_error"):
                assert judgement.first_error is None
            for estimate, prefix in zip(judgement.estimates, one.prefixes, strict=False):
                graded = counts[prefix].num_rollouts - counts[prefix].num_ungraded
                assert (estimate.low is None) == (graded == 0)
                assert estimate.value is None or graded
    assert results[0][0] == results[1][0] == results[2][0]


def test_first_error_stops_after_the_first_wrong_step() -> None:
    paths = [path([1, 2, 3, 4], WRONG), path([1, 5], RIGHT)]
    estimator = make("first_error", paths, rollouts=8)
    judgements, counts = drive(estimator, 6, until(2))
    assert [c.num_rollouts for c in counts] == [0, 8, 8, 0, 0, 0]
    assert judgements[0].hard == (True, False, False, False, False)
    assert judgements[0].sources == ("fixed", "fixed", "implied", "implied", "outcome")
    assert judgements[0].estimates[0].value == 1.0
    assert judgements[0].estimates[2].value is None
    assert judgements[1].hard == (True, True, True)
