"""Estimators that receive known outcomes, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import Estimator, Judgement, RecordedRollout, SolutionPath
from mclabel.labeling.estimators.tree import SearchCandidate
from tests.support.estimating import make, settings_of

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG
TRUNCATED, UNGRADED = Outcome.TRUNCATED, Outcome.UNGRADED


def drive(
    estimator: Estimator,
    num_prefixes: int,
    outcome: Callable[[int, int], Outcome],
    order: Callable[[int], int] = lambda due: 0,
) -> tuple[list[Judgement], list[Counts]]:
    """Record the outcomes of all rollouts that an estimator requests, until it requests no more.

    `order` returns the index of the pending rollout that arrives next.
    """
    counts = [Counts() for _ in range(num_prefixes)]
    num_requested = [0] * num_prefixes
    due: list[tuple[int, Outcome]] = []
    while True:
        for prefix in estimator.wanted():
            due.append((prefix, outcome(prefix, num_requested[prefix])))
            num_requested[prefix] += 1
        if not due:
            return estimator.judge(counts), counts
        prefix, result = due.pop(order(len(due)))
        counts[prefix] = counts[prefix].plus(result, 10)
        estimator.record(RecordedRollout(prefix=prefix, outcome=result, num_tokens=10))


def path(prefixes: Sequence[int], outcome: Outcome) -> SolutionPath:
    return SolutionPath(prefixes=tuple(prefixes), outcome=outcome)


def right_before(error: int) -> Callable[[int, int], Outcome]:
    """Return outcomes that are right for prefixes before `error`, and wrong for the others."""
    return lambda prefix, index: RIGHT if prefix < error else WRONG


EIGHT = {"rollouts": 8}
BY_HAND: dict[str, tuple[str, dict[str, int], list[SolutionPath], Any, list[int], list[str]]] = {
    "fixed: each distinct prefix once": (
        "fixed", EIGHT, [path([1, 2, 3], WRONG), path([1, 4], RIGHT)], right_before(3),
        [0, 8, 8, 8, 8], ["++-- fixed fixed fixed outcome", "+-+ fixed fixed outcome"],
    ),
    "fixed: the problem alone on demand": (
        "fixed", {"rollouts": 2, "root_rollouts": 5}, [path([1], RIGHT)], right_before(9),
        [5, 2], ["++ fixed outcome"],
    ),
    "fixed: no label without evidence": (
        "fixed", EIGHT, [path([1], UNGRADED)], lambda *_: UNGRADED, [0, 8], ["??"],
    ),
    "bisect: a probe ends at its first success": (
        "bisect", {"rollouts": 16, "batch": 4}, [path([1, 2, 3], WRONG)], right_before(9),
        [0, 0, 4, 4], ["+++-"],
    ),
    "bisect: right solutions cost nothing": (
        "bisect", EIGHT, [path([1, 2, 3], RIGHT)], right_before(0),
        [0, 0, 0, 0], ["++++ implied implied implied outcome"],
    ),
    "bisect: no judgement without an outcome": (
        "bisect", EIGHT, [path([1, 2], TRUNCATED)], right_before(0), [0, 0, 0], ["???"],
    ),
    "bisect: probes are shared": (
        "bisect", {"rollouts": 4, "batch": 4}, [path([1, 2, 3], WRONG), path([1, 2, 4], WRONG)],
        right_before(2), [0, 4, 4, 0, 0], ["+---", "+---"],
    ),
    "bisect: steps that it cannot see past": (
        "bisect", {"rollouts": 4}, [path([1, 2, 3], WRONG)],
        lambda prefix, index: UNGRADED if prefix == 2 else right_before(2)(prefix, index),
        [0, 4, 4, 0], ["+??-"],
    ),
    "first_error: stops after the first wrong step": (
        "first_error", EIGHT, [path([1, 2, 3, 4], WRONG), path([1, 5], RIGHT)], right_before(2),
        [0, 8, 8, 0, 0, 0], ["+---- fixed fixed implied implied outcome", "+++"],
    ),
}  # fmt: skip
"""Estimator, settings, solutions and rollout outcomes of each case. The expected rollouts per
prefix and labels per solution follow, some with sources."""


@pytest.mark.parametrize("name", BY_HAND)
def test_labels_by_hand(name: str) -> None:
    kind, keys, paths, outcome, num_rollouts, expected = BY_HAND[name]
    judgements, counts = drive(make(kind, paths, **keys), len(num_rollouts), outcome)
    assert [c.num_rollouts for c in counts] == num_rollouts
    for judgement, marks_and_sources in zip(judgements, expected, strict=True):
        marks, *sources = marks_and_sources.split()
        assert (
            "".join({True: "+", False: "-", None: "?"}[is_sound] for is_sound in judgement.hard)
            == marks
        )
        first = None if "?" in marks.partition("-")[0] else marks.find("-")
        assert judgement.first_error == (None if first == -1 else first)
        assert not sources or list(judgement.sources) == sources
        for estimate, source in zip(judgement.estimates, sources, strict=False):
            assert (estimate.value is None) == (source == "implied")


@pytest.mark.parametrize("num_steps", range(1, 12))
def test_bisect_finds_every_first_error_in_a_logarithm_of_probes(num_steps: int) -> None:
    for error in range(num_steps):
        estimator = make("bisect", [path(range(1, num_steps), WRONG)], rollouts=8, batch=4)
        judgements, counts = drive(estimator, num_steps, right_before(error + 1))
        assert judgements[0].first_error == error
        assert judgements[0].hard == tuple(t < error for t in range(num_steps))
        assert sum(c.num_rollouts > 0 for c in counts) <= (num_steps - 1).bit_length()


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[SolutionPath], int]:
    """Draw up to four solutions that may share first steps, and the number of prefixes."""
    count = 1
    paths: list[SolutionPath] = []
    for _ in range(draw(st.integers(1, 4))):
        shared: tuple[int, ...] = ()
        if paths:
            earlier = draw(st.sampled_from(paths)).prefixes
            shared = earlier[: draw(st.integers(0, len(earlier)))]
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
        assert not estimator.wanted()  # a finished estimator requests nothing
    for judgements, counts in results:
        assert all(c.num_rollouts <= rollouts for c in counts)
        for judgement, solution_path in zip(judgements, paths, strict=True):
            assert solution_path.num_steps == len(judgement.hard)
            assert solution_path.num_steps == len(judgement.sources) == len(judgement.estimates)
            if judgement.first_error is not None:
                assert judgement.hard[judgement.first_error] is False
            if solution_path.outcome is RIGHT and kind in ("bisect", "first_error"):
                assert judgement.first_error is None
            for estimate, prefix in zip(judgement.estimates, solution_path.prefixes, strict=False):
                graded = counts[prefix].num_rollouts - counts[prefix].num_ungraded
                assert (estimate.low is None) == (graded == 0)
                assert estimate.value is None or graded
    assert results[0][0] == results[1][0] == results[2][0]


def make_rollout(
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
    (candidate,) = tree.candidates
    # MC(root) = 1/2, so Q = .5 ** .5 * .9 ** (100 / 500) = .7071068 * .9791484; no visit yet.
    assert tree.score(candidate) == pytest.approx(0.6923624, abs=1e-6)

    # Steps 0..4; bracket (-1, 4): the middle is step 1, prefix 2.
    assert tree.wanted() == [2, 2]
    assert tree.wanted() == []  # both rollouts are pending
    tree.record(make_rollout(2, RIGHT, (6,), tokens=60))
    tree.record(make_rollout(2, WRONG, (7, 8), tokens=60))
    # MC(2) = 1/2 > 0: the error is later. Bracket (1, 4), the middle is step 2, prefix 3.
    assert tree.wanted() == [3, 3]
    tree.record(make_rollout(3, WRONG, (9,)))
    tree.record(make_rollout(3, WRONG))
    # MC(3) = 0, so the first error is step 2. The only visit so far is one of the problem alone.
    assert tree.states[0].num_searches == 1
    ours = SearchCandidate(2, (7, 8), 60, is_given_solution=False)
    lost = SearchCandidate(3, (9,), 50, is_given_solution=False)
    # .5 ** .5 * .9 ** .12 + .125 * sqrt(1) / (1 + 0)
    assert tree.score(ours) == pytest.approx(0.7071068 * 0.9874363 + 0.125, abs=1e-6)
    # The second search takes the wrong rollout of prefix 2. The rollout of prefix 3, where MC is 0,
    # is not a candidate. The bracket of its steps is (-1, 2), so the middle is its first step,
    # prefix 7.
    assert lost in tree.candidates
    assert tree.wanted() == [7, 7]
    assert tree.states[2].num_searches == 1
    tree.record(make_rollout(7, WRONG))
    tree.record(make_rollout(7, WRONG))
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
            tree.record(make_rollout(prefix, outcome))
        judgement = tree.judge(counts)[0]
        # The binary search over steps 0 to 4 leaves step 1 without a verdict; step 0 recovers.
        assert judgement.hard == (True, None, None, hard, False)
        assert judgement.first_error is None


def test_a_state_is_probed_once_for_all_rollouts_through_it() -> None:
    paths = [
        SolutionPath(prefixes=(1, 2, 3), outcome=WRONG),
        SolutionPath(prefixes=(1, 2, 4), outcome=WRONG),
    ]
    tree = make("tree", paths, rollouts=1, searches=0)
    requested: list[int] = []
    while wanted := tree.wanted():
        requested += wanted
        for prefix in wanted:
            tree.record(make_rollout(prefix, RIGHT if prefix == 2 else WRONG))
    assert requested == [2, 4, 3] or requested == [2, 3, 4]
    assert [j.first_error for j in tree.judge([Counts()] * 5)] == [2, 2]
