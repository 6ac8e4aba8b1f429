"""The estimator `trace`: exact inference, learned rates and the evidence between solutions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import (
    Completer,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
)
from mclabel.labeling.estimators.posterior.priors import POOLED
from mclabel.labeling.estimators.trace.agreement import (
    AGAIN,
    BACK,
    FIRST,
    OTHERWISE,
    count_rollout_agreement,
    count_step_agreement,
    repeats_then_departs,
)
from mclabel.labeling.estimators.trace.chain import (
    ERROR,
    KEPT,
    NUM_LEVELS,
    NUM_STATES,
    Floats,
    TraceEvidence,
    bin_steps_to_go,
    compute_dirichlet_multinomial_likelihoods,
    infer_beliefs,
)
from mclabel.labeling.estimators.trace.estimator import TraceEstimator, find_likeliest_moves
from mclabel.labeling.estimators.trace.fit import fit_rates
from mclabel.labeling.estimators.trace.rates import TraceRates, make_uninformed_rates

COMPLETERS = (Completer(), Completer(name="other"))
RATES = make_uninformed_rates(COMPLETERS).classes[POOLED]


def evidence_of(rng: np.random.Generator, lengths: Sequence[int]) -> TraceEvidence:
    width, count = max(lengths), len(lengths)
    counts = {completer.name: np.zeros((width, 3, count)) for completer in COMPLETERS}
    stated = np.zeros((width, 2, count))
    end = np.ones((2, count))
    for chain, steps in enumerate(lengths):
        for step in range(steps - 1):
            for completer in COMPLETERS:
                counts[completer.name][step, :, chain] = rng.integers(0, 3, 3)
            stated[step, rng.integers(2), chain] = rng.integers(2)
        end[rng.integers(2), chain] = 0
    root = {"policy": np.array([2.0, 0, 1]), "other": np.zeros(3)}
    has_step = np.arange(width)[:, None, None] < lengths
    steps = {
        name: rng.integers(0, 3, (width, shares.shape[1], count)) * has_step
        for name, shares in RATES.steps.items()
    }
    return TraceEvidence(
        num_steps=np.array(lengths),
        completion_counts=counts,
        root_counts=root,
        commitments=stated,
        step_counts={name: step_count.astype(np.float64) for name, step_count in steps.items()},
        outcome=end,
    )


def by_enumeration(evidence: TraceEvidence) -> tuple[Floats, list[Floats], list[Floats]]:
    """Enumerate all state sequences for the posteriors of root level, first errors and moves."""
    lengths = evidence.num_steps.tolist()
    weights = np.zeros((len(lengths), NUM_LEVELS))
    firsts = [np.zeros((NUM_LEVELS, steps + 1)) for steps in lengths]
    moves = [np.zeros((NUM_LEVELS, steps, 4)) for steps in lengths]
    bins = bin_steps_to_go(evidence.num_steps, max(lengths))
    for (chain, steps), root in itertools.product(enumerate(lengths), range(NUM_LEVELS)):
        for way in itertools.product(range(NUM_STATES), repeat=steps):
            chance, before = 1.0, 2 * root + 1
            for step, now in enumerate(way):
                level, state = divmod(now, 2)
                chance *= RATES.moves[before, now]
                for name, counts in evidence.completion_counts.items():
                    shares = RATES.shares[name][level, state, bins[step, chain]]
                    chance *= float(
                        compute_dirichlet_multinomial_likelihoods(
                            counts[step, :, chain], shares, RATES.spread[name]
                        )
                    )
                for name, counts in evidence.step_counts.items():
                    shares, spread = RATES.steps[name], RATES.step_spread[name]
                    of_moves = compute_dirichlet_multinomial_likelihoods(
                        counts[step, :, chain], shares, spread
                    )
                    chance *= float(of_moves[2 * (before % 2) + state])
                chance *= float(
                    np.prod(RATES.commitment[state] ** evidence.commitments[step, :, chain])
                )
                before = now
            states = [now % 2 for now in way]
            chance *= float(RATES.end[states[-1]] @ evidence.outcome[:, chain])
            weights[chain, root] += chance
            firsts[chain][root, states.index(0) if 0 in states else steps] += chance
            for step, (a, b) in enumerate(itertools.pairwise((1, *states))):
                moves[chain][root, step, 2 * a + b] += chance
    shares = RATES.shares["policy"][:, 1, bin_steps_to_go(np.array([max(lengths) + 1]), 1)[0, 0]]
    seen = compute_dirichlet_multinomial_likelihoods(
        evidence.root_counts["policy"][None], shares, RATES.spread["policy"]
    )
    roots = RATES.level * seen * weights.prod(0)
    roots /= roots.sum()
    root_weights = roots / weights
    return (
        roots,
        [root_weights[c] @ first_errors for c, first_errors in enumerate(firsts)],
        [np.einsum("l,lsm->sm", root_weights[c], chances) for c, chances in enumerate(moves)],
    )


@pytest.mark.slow
def test_beliefs_are_those_of_all_ways_there_are() -> None:
    evidence = evidence_of(np.random.default_rng(3), [3, 2, 1])
    beliefs = infer_beliefs(evidence, RATES)
    roots, firsts, moves = by_enumeration(evidence)
    np.testing.assert_allclose(beliefs.root_level, roots, rtol=1e-9)
    for chain, steps in enumerate(evidence.num_steps.tolist()):
        mine = np.append(beliefs.first_error[:steps, chain], beliefs.first_error[-1, chain])
        np.testing.assert_allclose(mine, firsts[chain], atol=1e-10)
        np.testing.assert_allclose(beliefs.moves[:steps, :, chain], moves[chain], atol=1e-10)
        assert not beliefs.moves[steps:, :, chain].any()


def test_five_hundred_steps_do_not_vanish() -> None:
    beliefs = infer_beliefs(evidence_of(np.random.default_rng(0), [500, 7]), RATES)
    np.testing.assert_allclose(beliefs.moves[:, :, 0].sum(1), 1, rtol=1e-9)
    np.testing.assert_allclose(beliefs.first_error.sum(0), 1, rtol=1e-9)


def test_the_likeliest_way_goes_wrong_where_it_is_told_to_and_hangs_together() -> None:
    moves = np.random.default_rng(1).dirichlet(np.ones(4), 8)
    way = find_likeliest_moves(moves, 2)
    assert way[:3] == [KEPT, KEPT, ERROR]
    for before, after in itertools.pairwise(way):
        # each move begins in the state in which the previous move ends
        assert before % 2 == after // 2
    best = max(
        sum(moves[t, k] for t, k in enumerate(tail, start=3))
        for states in itertools.product((0, 1), repeat=5)
        for tail in [[2 * a + b for a, b in itertools.pairwise((0, *states))]]
    )
    assert sum(moves[t, k] for t, k in enumerate(way) if t > 2) == pytest.approx(best)
    assert find_likeliest_moves(moves, None) == [KEPT] * 8


def test_rates_are_read_back_as_they_were_written_or_refused() -> None:
    rates = make_uninformed_rates(COMPLETERS)
    assert TraceRates.from_json(rates.to_json()).to_json() == rates.to_json()
    with pytest.raises(ValueError, match=r"rates have format 1, must be 'trace-1'"):
        TraceRates.from_json('{"format": 1}')
    broken = rates.to_json().replace("[0.2,", "[2.5,")
    with pytest.raises(ValueError, match=r"pooled\.level: each of its numbers must be in \[0, 1\]"):
        TraceRates.from_json(broken)


def test_a_state_that_is_not_believed_is_none() -> None:
    path = SolutionPath(prefixes=(1, 2), outcome=Outcome.WRONG, step_tokens=(5, 5, 5))
    settings = TraceEstimator.Settings(kind="trace", min_belief=0.9)
    (judgement,) = TraceEstimator(settings, ProblemPaths(paths=[path])).judge([Counts()] * 3)
    assert judgement.first_error is None and not judgement.is_decided
    assert judgement.states == (None, None, None)


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


def list_counts(
    agreement: dict[str, np.ndarray], name: str, chain: int = 0
) -> list[tuple[int, ...]]:
    return [tuple(int(x) for x in counts) for counts in agreement[name][:, :, chain]]


def test_a_solution_that_goes_over_its_steps_again() -> None:
    """The solution errs at x, states an answer, restarts, and then avoids the error at x."""
    mine = path("abxyW-abcdz", Outcome.RIGHT)
    right, wrong = path("abcdz", Outcome.RIGHT, 1), path("abxyz", Outcome.WRONG, 2)
    chosen = path("abcdz", Outcome.RIGHT, 3, sampled=False)
    agreement = count_step_agreement([mine, right, wrong, chosen], [mine, right, wrong, chosen])
    ways = [way.index(1) if 1 in way else None for way in list_counts(agreement, "way")]
    # The answer, the step without content and the last step are not compared.
    assert ways == [FIRST, FIRST, FIRST, FIRST, None, None, BACK, AGAIN, OTHERWISE, FIRST, None]
    none = (0, 0)
    new = [0, 1, 2, 3, 8, 9]
    held = {name: list_counts(agreement, name) for name in ("held by right", "held by wrong")}
    assert [held["held by right"][n] for n in new] == [(1, 0)] * 2 + [(0, 1)] * 2 + [(1, 0)] * 2
    assert [held["held by wrong"][n] for n in new] == [(1, 0)] * 4 + [(0, 1)] * 2
    assert all(held["held by right"][n] == none for n in range(11) if n not in new)
    follows = list_counts(agreement, "follows")
    assert follows[1:4] == [(2, 0), (1, 1), (1, 0)] and follows[9] == (1, 0)
    assert [list_counts(agreement, f"turns {way}")[8] for way in ("to", "from")] == [(1, 1)] * 2
    assert sum(map(sum, list_counts(agreement, "turns to"))) == 2


def test_a_solution_alone_is_compared_with_itself_only() -> None:
    agreement = count_step_agreement(
        [path("abab", Outcome.RIGHT)], [path("abab", Outcome.RIGHT)] * 2
    )
    assert [np.argmax(way) for way in list_counts(agreement, "way")[:3]] == [FIRST, FIRST, BACK]
    # For two copies, each is a sample of the other.
    assert list_counts(agreement, "held by right")[:2] == [(1, 0), (1, 0)]


def test_a_rollout_counts_up_to_where_it_leaves() -> None:
    mine = path("abcde", Outcome.WRONG)
    agreement = count_step_agreement([mine], [mine])
    count_rollout_agreement(agreement, mine, 0, 1, content("bcxe"))
    count_rollout_agreement(agreement, mine, 0, 2, content("c"))
    assert list_counts(agreement, "rollouts") == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 0)]


def test_a_completion_leaves_the_way_of_what_it_continues() -> None:
    """Intermediate answers and words are ignored, and a restart is not a departure."""
    a, b, c, d = content("abcd")
    before = [a, b, c]
    assert not repeats_then_departs(before, [d, "numbers 9", "words check", a, b, c, d])
    assert repeats_then_departs(before, [d, "numbers 9", "words check", a, b, d])
    assert not repeats_then_departs(before, [d, a])


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
    assert {judgement.first_error for judgement in right} == {None}


def test_chances_are_less_sure_where_the_same_solutions_are_asked_at_each_step() -> None:
    for number, paths in enumerate(
        (
            [path("abcdef", Outcome.WRONG), path("abxdef", Outcome.RIGHT, 1)],
            [path("abcdef", Outcome.WRONG)],  # no other solution to compare with
        )
    ):
        estimator = TraceEstimator(TraceEstimator.Settings(kind="trace"), ProblemPaths(paths=paths))
        shown = estimator.evidence()
        chances = infer_beliefs(
            shown.evidence, make_uninformed_rates(shown.completers).classes[POOLED]
        )
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
    completions = [(n, ends[n % 2]) for n in range(500) for _ in range(8)]
    completions += [(0, ends[n % 2]) for n in range(1016)]
    for n, end in completions:
        estimator.record(
            RecordedRollout(prefix=paths[n].prefixes[0], outcome=end, is_requested=False)
        )
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        judged = estimator.judge([Counts()] * 50_000)
        fitted = fit_rates({"": [estimator.evidence()]})
    # A step that all solutions share is not an error, so only the last step can be wrong.
    assert [judgement.first_error for judgement in judged] == [None, 3] * 250
    assert all(np.isfinite(rates.moves).all() for rates in fitted.classes.values())
