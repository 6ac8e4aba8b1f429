"""Decisions for many problems together equal those for each alone; coarsened posteriors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mclabel.core.records import Outcome
from mclabel.labeling.estimators import RecordedRollout, SolutionPath
from mclabel.labeling.estimators.posterior.chain import Evidence, infer_beliefs
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.evidence import EvidenceTable
from mclabel.labeling.estimators.posterior.judging import temper_posterior
from mclabel.labeling.estimators.posterior.plan import DRAWS, make_plans
from mclabel.labeling.estimators.posterior.priors import GRID, Priors, make_uninformed_priors
from tests.benchmarks.simulation.profiles import simulated_cases
from tests.benchmarks.simulation.replay import Case, Game
from tests.support.estimating import make

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG


def some_priors() -> Priors:
    """Return priors of two different classes."""
    wide = make_uninformed_priors().for_class("any")
    digits = replace(wide, agreement=np.array([[3.0, 1.0], [0.5, 2.0], [1.0, 1.5]]))
    return Priors(classes={"pooled": wide, "digit": digits}, num_solutions=1)


def estimator_of(case: Case, number: int) -> PosteriorEstimator:
    paths = [
        replace(path, step_keys=tuple(f"{i}:{p % 5}" for i, p in enumerate((*path.prefixes, 0))))
        for path in case.paths
    ]
    estimator = make(
        "posterior",
        paths,
        knowledge=some_priors_once,
        answer_class="digit" if number % 3 == 0 else "number",
        min_gain=0.06,
        rollouts=8,
        agreement=number % 2 == 0,
    )
    return estimator


some_priors_once = some_priors()


def test_what_is_known_of_unchanged_chains_is_kept_exactly() -> None:
    for number, case in enumerate(simulated_cases("sharp", 12, seed=7, num_solutions=4)):
        estimator = estimator_of(case, number)
        game = Game(estimator, case)
        while game.move():
            [view] = estimator._outcome_views.views
            request = view.evidence_for_plan()
            afresh = replace(
                request, previous_plan=None, changed_chains=range(len(request.num_steps))
            )
            assert len(request.changed_chains) <= len(afresh.changed_chains)
            kept, new = make_plans([request, afresh])
            assert np.array_equal(kept.table, new.table)


def test_draws_that_a_probe_takes_by_hand() -> None:
    estimator = make(
        "posterior",
        [SolutionPath(prefixes=(1,), outcome=WRONG)],
        answer_class="number",
        min_gain=60.0,
        rollouts=1,
    )
    [view] = estimator._outcome_views.views
    request = view.evidence_for_plan()
    [plan] = make_plans([request])
    right, wrong, same, others = request.counts
    evidence = Evidence(
        num_steps=request.num_steps,
        right=right,
        wrong=wrong,
        num_taking_same_step=same,
        num_reaching_prefix=others,
        outcome=request.outcome,
        external_likelihood=request.external_likelihood,
    )
    values = infer_beliefs(evidence, request.priors).value_probabilities[..., 0].T
    for r in (1, 2):
        for i, m in enumerate(DRAWS):
            # The geometric series up to m: the sum over j < m of the chances that j rollouts
            # failed.
            expected = sum(values[r - 1] @ (1 - GRID) ** j for j in range(m))
            assert plan.table[0, r, len(DRAWS) + i] == pytest.approx(expected)
        assert plan.mean[0, r] == pytest.approx(values[r - 1] @ GRID)


def test_solutions_with_the_same_content_are_one_chain() -> None:
    path = SolutionPath(prefixes=(1, 2), outcome=WRONG)
    other_path = SolutionPath(prefixes=(1, 3), outcome=RIGHT)
    table = EvidenceTable([path, other_path, path], agreement=False, truncated="wrong")
    assert table.chain_index.tolist() == [0, 1, 0] and table.copies.tolist() == [2, 1]
    seen = table.evidence(table.counts, np.ones((2, 4)))
    # To solution 0, its copy is also a rollout of prefix 2, and the other solution one of prefix 1.
    assert seen.wrong[0].tolist() == seen.wrong[2].tolist() == [0, 1, 0, 1]
    assert seen.right[0].tolist() == [0, 0, 1, 1]
    assert seen.wrong[1].tolist() == [0, 0, 2, 2] and seen.right[1].sum() == 0


def test_evidence_without_agreement_by_hand() -> None:
    paths = [
        SolutionPath(prefixes=(1, 2, 3), outcome=WRONG, sampled=False),
        SolutionPath(prefixes=(1, 4), outcome=WRONG, sampled=False),
        SolutionPath(prefixes=(5,), outcome=WRONG, sampled=False),
    ]
    table = EvidenceTable(paths, agreement=False, truncated="wrong")
    # The rollout starts from the problem alone, passes prefixes 1 and 2, then leaves all solutions.
    assert table.record(RecordedRollout(prefix=0, outcome=WRONG, path=(1, 2))) == {0, 1, 2}
    assert table.counts[1, 0].tolist() == [0, 0, 1, 0, 1]
    assert table.counts[1, 1].tolist() == [0, 0, 1, 1, 0]
    assert table.counts[1, 2].tolist() == [0, 0, 1, 0, 0]
    # A success from prefix 3 shows that prefix 1 can still succeed. It changes nothing for the
    # problem alone.
    assert table.record(RecordedRollout(prefix=3, outcome=RIGHT)) == {0, 1}
    assert table.counts[0, 0].tolist() == [0, 1, 0, 0, 0]
    assert table.counts[0, 1].tolist() == [0, 0, 1, 0, 0]
    assert table.counts[0, 2].sum() == 0
    # For values, each outcome counts only at the prefix where its sample started.
    right, wrong = table.count_outcomes_once()[:2]
    assert wrong[0].tolist() == [0, 0, 0, 0, 1] and right[0].tolist() == [0, 1, 0, 0, 0]
    assert right[1].sum() == 0
    # A failure from prefix 3 is no evidence about prefix 1.
    assert table.record(RecordedRollout(prefix=3, outcome=WRONG)) == {0}


def test_a_coarsened_posterior_by_hand() -> None:
    # Odds of 32 become 32 ** 0.8 = 16.
    assert temper_posterior(np.array([1 / 33, 32 / 33])) == pytest.approx([1 / 17, 16 / 17])
