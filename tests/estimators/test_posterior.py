"""The posterior compared with brute force, its fit to simulated data, and its requests."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln

from mclabel.core.errors import DataError
from mclabel.core.records import AUTHOR, CHANCE, Counts, Outcome, Problem
from mclabel.labeling.estimators import RecordedRollout, SolutionPath, classify_gold_answer
from mclabel.labeling.estimators.paths import get_guess_probability
from mclabel.labeling.estimators.posterior.chain import Evidence, infer_beliefs
from mclabel.labeling.estimators.posterior.estimator import PriorLearner
from mclabel.labeling.estimators.posterior.evidence import (
    EvidenceTable,
    stack_evidence,
)
from mclabel.labeling.estimators.posterior.fit import fit_priors
from mclabel.labeling.estimators.posterior.judging import (
    find_most_likely_first_error,
    geometric_mean_posterior,
)
from mclabel.labeling.estimators.posterior.plan import DRAWS, compute_probe_gains
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    LUCK,
    ClassPriors,
    Priors,
    make_starting_priors,
    make_uninformed_priors,
)
from tests.benchmarks.simulation.measure import measure
from tests.benchmarks.simulation.profiles import simulated_cases
from tests.benchmarks.simulation.replay import replay
from tests.support.estimating import make

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG


def some_priors() -> ClassPriors:
    """Return wide priors with non-uniform agreement parameters."""
    return replace(
        make_uninformed_priors().for_class("any"),
        agreement=np.array([[3.0, 1.0], [0.5, 2.0], [1.0, 1.5]]),
    )


def some_evidence(rng: np.random.Generator, num_steps: list[int]) -> Evidence:
    shape = (len(num_steps), max(num_steps) + 1)
    has_state = np.arange(shape[1]) <= np.array(num_steps)[:, None]
    has_state[:, 0] = False
    others = rng.integers(0, 4, shape) * has_state
    ends = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return Evidence(
        num_steps=np.array(num_steps),
        right=rng.integers(0, 3, shape) * has_state * 1.0,
        wrong=rng.integers(0, 5, shape) * has_state * 1.0,
        num_taking_same_step=rng.integers(0, others + 1) * 1.0,
        num_reaching_prefix=others * 1.0,
        outcome=ends[rng.integers(0, 3, len(num_steps))],
        external_likelihood=rng.uniform(0.01, 1.0, shape),
    )


def brute_force(evidence: Evidence, b: int, priors: ClassPriors) -> np.ndarray:
    """Return the marginal [e, r, grid] of (first error, values of all prefixes) by enumeration."""
    steps = int(evidence.num_steps[b])
    m, n = evidence.num_taking_same_step[b], evidence.num_reaching_prefix[b]
    agree = np.exp([betaln(m + x, n - m + y) - betaln(x, y) for x, y in priors.agreement])
    chances = np.zeros((steps + 1, steps + 1, len(GRID)))
    for e in range(steps + 1):
        for values in itertools.product(range(len(GRID)), repeat=steps):
            chance = priors.root[steps - 1, values[0]]  # values[0] is the problem alone's
            chance *= evidence.external_likelihood[b, e]
            for depth in range(steps):
                r, v = steps - depth, values[depth]
                p = GRID[v]
                chance *= p ** evidence.right[b, r] * (1 - p) ** evidence.wrong[b, r]
                kind = 0 if e < r else 1 if e == r else 2
                chance *= agree[kind, r]
                if r > 1:
                    chance *= (priors.sound, priors.wrong, priors.unsound)[kind][
                        r - 1, v, values[depth + 1]
                    ]
                else:
                    chance *= priors.leaf[kind, v] @ evidence.outcome[b]
            for depth in range(steps):
                chances[e, steps - depth, values[depth]] += chance
    return chances


def test_forward_backward_is_brute_force() -> None:
    evidence = some_evidence(np.random.default_rng(1), [3, 1, 2, 3])
    beliefs = infer_beliefs(evidence, some_priors())
    for b, steps in enumerate(evidence.num_steps):
        exact = brute_force(evidence, b, some_priors())
        exact /= exact[:, steps].sum()
        assert beliefs.first_error[: steps + 1, b] == pytest.approx(exact[:, steps].sum(-1))
        assert beliefs.first_error[steps + 1 :, b] == pytest.approx(0)
        for r in range(1, steps + 1):
            assert (
                pytest.approx(exact[:, r], abs=1e-12)
                == beliefs.joint_probabilities[:, : steps + 1, r - 1, b].T
            )
        assert beliefs.value_probabilities[:, steps - 1, b] == pytest.approx(exact[:, steps].sum(0))


def test_gain_of_a_probe_by_hand() -> None:
    # With one step, the only prefix is the problem alone, so its value determines the first error.
    evidence = Evidence(
        num_steps=np.array([1]),
        right=np.zeros((1, 2)),
        wrong=np.zeros((1, 2)),
        num_taking_same_step=np.zeros((1, 2)),
        num_reaching_prefix=np.zeros((1, 2)),
        outcome=np.array([[1.0, 1.0]]),
        external_likelihood=np.ones((1, 2)),
    )
    beliefs = infer_beliefs(evidence, make_uninformed_priors().for_class("any"))
    joint, marginal = beliefs.joint_probabilities[:, :, 0, 0].T, beliefs.first_error[:, 0]
    gains = compute_probe_gains(beliefs)
    for i, m in enumerate(DRAWS):
        none = joint @ (1 - GRID) ** m
        some = marginal - none
        rise = none.max() + some.max() - marginal.max()
        entropy = [-(p * np.log(p / p.sum())).sum() for p in (none, some)]
        assert gains[i, 0, 0] == pytest.approx(
            rise + 0.15 * (-(marginal * np.log(marginal)).sum() - sum(entropy))
        )


def keyed(outcome: Outcome, prefixes: tuple[int, ...], keys: str) -> SolutionPath:
    return SolutionPath(prefixes=prefixes, outcome=outcome, step_keys=tuple(keys))


def no_other_completers(table: EvidenceTable) -> np.ndarray:
    """Return the likelihood of other completers for a problem that has none."""
    return np.ones(table.counts.shape[1:])


def test_evidence_by_hand() -> None:
    paths = [keyed(WRONG, (1, 2), "abc"), keyed(RIGHT, (1, 3), "abe"), keyed(RIGHT, (4,), "xe")]
    table = EvidenceTable(paths, agreement=True, truncated="wrong")
    seen = table.evidence(table.counts, no_other_completers(table))
    # For solution 0 the two others are right rollouts of the problem alone, three steps from the
    # end.
    assert seen.right[0].tolist() == [0, 0, 0, 2]
    # One of the two has the same first and second steps, but another third step.
    assert seen.num_reaching_prefix[0].tolist() == [0, 1, 1, 2]
    assert seen.num_taking_same_step[0].tolist() == [0, 0, 1, 1]
    # Prefixes 2 and 3 have the same text, so a rollout from one is evidence for both.
    table.record(RecordedRollout(prefix=3, outcome=WRONG, step_keys=("c",)))
    seen = table.evidence(table.counts, no_other_completers(table))
    assert seen.wrong[0].tolist() == [0, 1, 0, 0]
    # solution 0 is a wrong rollout of the problem alone
    assert seen.wrong[1].tolist() == [0, 1, 0, 1]
    assert seen.num_taking_same_step[:2].tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert seen.outcome.tolist() == [[1, 0], [0, 1], [0, 1]]
    plain = EvidenceTable(paths, agreement=False, truncated="exclude")
    plain.record(RecordedRollout(prefix=3, outcome=Outcome.TRUNCATED, step_keys=("c",)))
    assert plain.evidence(plain.counts, no_other_completers(plain)).num_reaching_prefix.sum() == 0
    assert plain.evidence(plain.counts, no_other_completers(plain)).wrong[0].sum() == 0


def test_a_step_that_restates_is_less_likely_to_be_the_first_error() -> None:
    def first_error(factors: tuple[float, ...]) -> list[float]:
        path = replace(keyed(WRONG, (1, 2), "abc"), step_factors=factors)
        table = EvidenceTable([path], agreement=False, truncated="wrong")
        evidence = table.evidence(table.counts, no_other_completers(table))
        posterior = infer_beliefs(evidence, make_starting_priors().for_class("any")).first_error[
            :, 0
        ]
        return [float(posterior[3 - step] / posterior[1]) for step in range(2)]

    plain, restates = first_error((1.0, 1.0, 1.0)), first_error((0.3, 1.0, 0.3))
    assert restates[0] == pytest.approx(0.3 * plain[0])
    assert restates[1] == pytest.approx(plain[1])


def test_solutions_that_were_not_sampled_are_no_rollouts() -> None:
    paths = [replace(keyed(RIGHT, (1,), "ab"), sampled=False), keyed(WRONG, (1,), "ac")]
    table = EvidenceTable(paths, agreement=True, truncated="wrong")
    seen = table.evidence(table.counts, no_other_completers(table))
    assert seen.wrong[0].sum() == 1 and seen.right[1].sum() == 0
    assert seen.outcome.tolist() == [[0, 1], [1, 0]]


def test_em_raises_the_likelihood_and_finds_what_agreement_means() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(300):
        # Each solution has three steps. The second is wrong in half of them; no other solution
        # agrees with a wrong step, and no rollout recovers from it.
        wrong = rng.random() < 0.5
        rolled = [rng.binomial(8, p) for p in ((0.0 if wrong else 0.9), 0.8, 0.5)]
        same = [3, rng.binomial(3, 0.1 if wrong else 0.9), 3]
        parts.append(
            Evidence(
                num_steps=np.array([3]),
                right=np.array([[0, *rolled]], dtype=float),
                wrong=np.array([[0, *(8 - k for k in rolled)]], dtype=float),
                num_taking_same_step=np.array([[0, *same]], dtype=float),
                num_reaching_prefix=np.array([[0, 3, 3, 3]], dtype=float),
                outcome=np.array([[1.0, 0.0] if wrong else [0.0, 1.0]]),
                external_likelihood=np.ones((1, 4)),
            )
        )
    batch = stack_evidence(parts)
    evidence = [{AUTHOR: part} for part in parts]
    fitted = [fit_priors({"number": evidence}, rounds=n).for_class("number") for n in (0, 1, 4, 8)]
    likelihoods = [
        infer_beliefs(batch, priors).log_likelihood[: len(parts)].sum() for priors in fitted
    ]
    assert likelihoods == sorted(likelihoods)
    right, first_wrong, _ = fit_priors({"number": evidence}).for_class("number").agreement
    assert right[0] / right.sum() > 0.8
    assert first_wrong[0] / first_wrong.sum() < 0.4


def test_priors_survive_being_written_and_are_known_by_content() -> None:
    priors = make_uninformed_priors()
    again = Priors.from_json(priors.to_json())
    assert again.id == priors.id and again.num_solutions == 0
    assert np.allclose(again.for_class("x").sound, priors.for_class("x").sound, rtol=1e-6)
    assert again.values is None and again.for_values("x") is again.for_class("x")
    narrow = replace(priors, values={"pooled": some_priors()})
    again = Priors.from_json(narrow.to_json())
    assert again.id == narrow.id != priors.id
    assert again.for_values("x").agreement.tolist() == some_priors().agreement.tolist()
    with pytest.raises(ValueError, match="format 9"):
        Priors.from_json('{"format": 9}')


@pytest.mark.parametrize(
    ("answer", "text", "name"),
    [
        ("Yes", "Is it so?", "boolean 0.5"),
        ("(C)", "Which one?", "choice 0.25"),
        ("C", "Which one? (A) 1 (B) 2 (C) 3 (D) 4 (E) 5", "choice 0.2"),
        ("B", "Which one?\nA. 1\nB. 2\nC. 3", "choice 0.333"),
        ("7", "", "digit"),
        ("17", "", "number"),
        ("x+1", "", "text"),
    ],
)
def test_answer_classes(answer: str, text: str, name: str) -> None:
    assert classify_gold_answer(Problem(id="p", text=text, answer=answer)) == name


def test_a_given_chance_comes_before_the_golds() -> None:
    problem = Problem(id="p", text="", answer="Yes", meta={CHANCE: "0.125"})
    assert (
        classify_gold_answer(problem) == "boolean 0.125"
        and get_guess_probability("boolean 0.125") == 0.125
    )
    assert classify_gold_answer(replace(problem, answer="7", meta={CHANCE: "0"})) == "digit"
    assert get_guess_probability("digit") == 0
    for wrong in ("x", "1", "-0.5", "nan"):
        with pytest.raises(DataError, match="must be a number of at least 0"):
            classify_gold_answer(replace(problem, meta={CHANCE: wrong}))


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_priors_with_guesses_are_those_of_the_chain_with_guesses(chance: float) -> None:
    priors = make_starting_priors().for_class("digit")
    class_priors = make_starting_priors().for_class(f"digit {chance}")
    for rows in (
        np.concatenate([class_priors.sound, class_priors.wrong], axis=-1),
        class_priors.unsound,
        class_priors.root,
    ):
        assert np.allclose(rows.sum(-1), 1, atol=1e-3)
    assert np.allclose(class_priors.leaf[:2].sum((0, 2)), 1, atol=1e-3)
    mean = priors.root @ GRID
    assert np.allclose(class_priors.root @ GRID, mean + (1 - mean) * chance, atol=2e-3)
    assert (class_priors.leaf[2, :, 1] >= chance - 1e-9).all()


def test_beliefs_hold_where_luck_sticks_to_a_solution() -> None:
    """For 7 in 10 solutions wrong answers become right, as with a checker that compares parity."""
    coins = random.Random(1)
    errors = {}
    for kind in ("number", "number 0.5"):
        coins.seed(1)
        belief, right = [], []
        for case in simulated_cases("sharp", 60):
            lucky = [coins.random() < 0.7 for _ in case.paths]
            lucky_prefixes = {
                prefix
                for path, is_lucky in zip(case.paths, lucky, strict=True)
                if is_lucky
                for prefix in path.prefixes
            }

            def guessed(outcome: Outcome, is_lucky: bool) -> Outcome:
                return Outcome.RIGHT if is_lucky and outcome is Outcome.WRONG else outcome

            def draw(
                probe: Any, index: int, case: Any = case, lucky_prefixes: Any = lucky_prefixes
            ) -> Any:
                rollout = case.draw(probe, index)
                return replace(
                    rollout, outcome=guessed(rollout.outcome, probe.prefix in lucky_prefixes)
                )

            paths = tuple(
                replace(path, outcome=guessed(path.outcome, is_lucky))
                for path, is_lucky in zip(case.paths, lucky, strict=True)
            )
            case = replace(case, paths=paths, draw=draw, answer_class=kind)
            estimator = make("posterior", paths, answer_class=kind, rollouts=16)
            for path, judgement, truth in zip(
                paths, replay(estimator, case).judgements, case.truth, strict=True
            ):
                # The last step is wrong if and only if the outcome is wrong, so both share one
                # label.
                *chances, of_last, of_none = judgement.posterior or ()
                labels = np.array([*chances, of_last + of_none])
                likeliest = int(labels.argmax())
                first_error = (
                    likeliest
                    if likeliest < path.num_steps - 1 or path.outcome is Outcome.WRONG
                    else None
                )
                belief.append(labels[likeliest])
                right.append(first_error == truth)
        errors[kind] = float(np.mean(belief) - np.mean(right))
    assert errors["number"] > 0.2 and abs(errors["number 0.5"]) < 0.1, errors


def test_learner_pilots_fits_and_keeps_to_its_budget() -> None:
    learner = PriorLearner(
        make_uninformed_priors(), min_gain=1e-3, pilot=40, tokens_per_solution=100
    )
    for case in simulated_cases("sharp", 20):
        estimator = make(
            "posterior",
            case.paths,
            knowledge=learner.knowledge,
            answer_class="number",
            min_gain=1e-3,
            rollouts=8,
        )
        assert not learner.is_due
        learner.record(case.problem, estimator, num_tokens=replay(estimator, case).num_tokens)
    assert learner.is_due
    learner.fit()
    assert learner.knowledge.num_solutions == 40 and not learner.is_due
    assert learner.min_gain == pytest.approx(1e-3)
    learner.record(case.problem, estimator, num_tokens=10_000)
    assert learner.min_gain == pytest.approx(1e-3 * np.exp(0.05), rel=1e-5)
    learner.record(case.problem, estimator, num_tokens=0)
    assert learner.min_gain == pytest.approx(1e-3)


def test_learner_adopts_what_was_fitted_on_more() -> None:
    def priors(count: int) -> Priors:
        return Priors(classes=make_uninformed_priors().classes, num_solutions=count)

    learner = PriorLearner(make_uninformed_priors(), min_gain=1e-3, pilot=4)
    learner.adopt(priors(30).to_json())
    assert learner.knowledge.num_solutions == 30
    assert learner.min_gain == pytest.approx(1e-3)
    learner.adopt(priors(20).to_json())
    assert learner.knowledge.num_solutions == 30
    for case in simulated_cases("sharp", 15):
        assert not learner.is_due  # not due before it has recorded as many solutions itself
        learner.record(case.problem, make("posterior", case.paths, min_gain=60.0), num_tokens=0)
    assert learner.is_due


def test_solutions_that_share_no_prefix_are_probed_side_by_side() -> None:
    # Three solutions have no common prefix; the fourth shares its first step with the first.
    ways = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (1, 10, 11)]
    paths = [keyed(WRONG, way, "abcd") for way in ways]
    estimator = make("posterior", paths, min_gain=0.0006, rollouts=16, agreement=False)
    most = 0
    while wanted := estimator.wanted():
        requested = set(wanted)
        assert all(len(requested.intersection((0, *way))) <= 1 for way in ways)
        most = max(most, len(requested))
        for prefix in wanted:
            estimator.record(
                RecordedRollout(prefix=prefix, outcome=WRONG if prefix % 3 else RIGHT, num_tokens=9)
            )
    assert most >= 3


def test_right_answers_are_seldom_luck_where_agreement_is_used() -> None:
    plain = some_priors()
    wary = plain.with_rare_luck
    assert np.array_equal(wary.leaf[0], plain.leaf[0])
    assert np.allclose(wary.leaf[1:, :, 1], LUCK * plain.leaf[1:, :, 1])
    assert np.array_equal(wary.leaf[1:, :, 0], plain.leaf[1:, :, 0])
    # One solution is right, and three wrong solutions agree on other steps.
    paths = [keyed(RIGHT, (1, 2), "abz"), *[keyed(WRONG, (3, 4), "xyw")] * 3]
    reading = Priors(classes={"pooled": plain}, num_solutions=1)
    estimator = make(
        "posterior",
        paths,
        knowledge=replace(reading, agreement=reading),
        rollouts=1,
        min_belief=0.0,
    )
    judged = estimator.judge([Counts()] * 5)
    assert judged[0].first_error is None and judged[1].first_error is not None


def test_a_lower_least_gain_costs_more_and_a_cap_holds() -> None:
    def run(**changes: float) -> tuple[float, float]:
        measurement = measure(
            lambda case: make("posterior", case.paths, rollouts=64, **changes),
            simulated_cases("sharp", 20),
        )
        # the expected tokens
        assert measurement.table[:, 1].max() <= changes.get("max_tokens", np.inf) * 1.5
        return measurement.tokens_per_solution, measurement.first_error_accuracy

    low, high = run(min_gain=0.006), run(min_gain=0.18)
    capped = run(min_gain=0.006, max_tokens=200)
    assert low[0] > 1.5 * high[0] and low[1] >= high[1]
    assert capped[0] < low[0]


def test_two_readings_are_pooled_and_what_is_not_believed_is_undecided() -> None:
    first, second = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.7, 0.1])
    # The square roots of .12, .21 and .01, divided by their sum.
    assert geometric_mean_posterior([first, second]) == pytest.approx(
        [0.3829, 0.5065, 0.1105], abs=1e-4
    )
    assert geometric_mean_posterior([first]) is first
    assert geometric_mean_posterior([np.array([1.0, 0.0]), np.array([0.5, 0.5])])[0] > 0.999
    # Of two steps, "error in the last" and "no error" give the same label to the first: sound.
    assert find_most_likely_first_error(first, WRONG, 0.5) == (0, True)
    assert find_most_likely_first_error(first, WRONG, 0.61) == (0, False)
    assert find_most_likely_first_error(second, WRONG, 0.75) == (1, True)
    assert find_most_likely_first_error(second, RIGHT, 0.75) == (None, True)
    # A wrong answer needs an error, so the last step is wrong if no earlier step is.
    assert find_most_likely_first_error(np.array([0.1, 0.1, 0.8]), WRONG, 0.5) == (1, True)


def test_steps_of_an_undecided_solution_are_sound_or_have_no_label() -> None:
    paths = [keyed(WRONG, (1, 2, 3), "abcd"), keyed(RIGHT, (1, 4), "axy")]
    labels = {}
    for least in (0.0, 0.45, 0.999):
        estimator = make("posterior", paths, rollouts=1, min_gain=600.0, min_belief=least)
        labels[least] = estimator.judge([Counts()] * 5)[0]
    chances = labels[0.0].posterior
    assert chances == labels[0.999].posterior
    assert labels[0.0].is_decided and None not in labels[0.0].hard
    assert not labels[0.999].is_decided and labels[0.999].first_error is None
    assert labels[0.999].hard == (None, None, None, False)  # the last label comes from the outcome
    for least, label in labels.items():
        for step, hard in enumerate(label.hard[:-1]):
            if not label.is_decided:
                assert hard is (True if 1 - sum(chances[: step + 1]) >= least else None)
