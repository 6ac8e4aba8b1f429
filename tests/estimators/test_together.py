"""Many problems decided together against each alone; calibrated beliefs against raw ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.core.records import Counts, Outcome
from mclabel.labeling.estimators import RecordedRollout, SolutionPath
from mclabel.labeling.estimators.posterior import judging
from mclabel.labeling.estimators.posterior.chain import Evidence, infer
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.evidence import EvidenceTable
from mclabel.labeling.estimators.posterior.judging import (
    KNOTS,
    Curve,
    Kind,
    calibrated,
    covariates,
    fit_curve,
)
from mclabel.labeling.estimators.posterior.plan import DRAWS, make_plans
from mclabel.labeling.estimators.posterior.priors import GRID, Priors, wide_priors
from tests.benchmarks.simulation.profiles import simulated_cases
from tests.benchmarks.simulation.replay import Case, Game
from tests.support.estimating import make

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG


def some_priors() -> Priors:
    """Two classes that differ."""
    wide = wide_priors().of("any")
    other = replace(wide, agreement=np.array([[3.0, 1.0], [0.5, 2.0], [1.0, 1.5]]))
    return Priors(classes={"pooled": wide, "digit": other}, num_solutions=1)


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
        min_gain_per_token=1e-3,
        rollouts=8,
        agreement=number % 2 == 0,
    )
    assert isinstance(estimator, PosteriorEstimator)
    return estimator


some_priors_once = some_priors()


def test_what_is_known_of_unchanged_chains_is_kept_exactly() -> None:
    for number, case in enumerate(simulated_cases("sharp", 12, seed=7, num_solutions=4)):
        estimator = estimator_of(case, number)
        game = Game(estimator, case)
        while game.move():
            [view] = estimator._outcomes.views
            request = view.request()
            afresh = replace(request, previous=None, changed=range(len(request.num_steps)))
            assert len(request.changed) <= len(afresh.changed)
            kept, new = make_plans([request, afresh])
            assert np.array_equal(kept.table, new.table)


def test_draws_that_a_probe_takes_by_hand() -> None:
    estimator = make(
        "posterior",
        [SolutionPath(prefixes=(1,), outcome=WRONG)],
        answer_class="number",
        min_gain_per_token=1.0,
        rollouts=1,
    )
    [view] = estimator._outcomes.views
    request = view.request()
    [plan] = make_plans([request])
    right, wrong, same, others = request.counts
    evidence = Evidence(
        num_steps=request.num_steps,
        right=right,
        wrong=wrong,
        same=same,
        others=others,
        outcome=request.outcome,
        elsewhere=request.elsewhere,
    )
    values = infer(evidence, request.priors).values[..., 0].T
    for r in (1, 2):
        for i, m in enumerate(DRAWS):
            # Geometric, cut at m: the sum of the chances that j rollouts have failed, j < m.
            expected = sum(values[r - 1] @ (1 - GRID) ** j for j in range(m))
            assert plan.table[0, r, len(DRAWS) + i] == pytest.approx(expected)
        assert plan.mean[0, r] == pytest.approx(values[r - 1] @ GRID)


def test_solutions_with_the_same_content_are_one_chain() -> None:
    path = SolutionPath(prefixes=(1, 2), outcome=WRONG)
    other = SolutionPath(prefixes=(1, 3), outcome=RIGHT)
    table = EvidenceTable([path, other, path], agreement=False, truncated="wrong")
    assert table.chain_of.tolist() == [0, 1, 0] and table.copies.tolist() == [2, 1]
    seen = table.evidence(table.counts, np.ones((2, 4)))
    # Its copy is a rollout of prefix 2 to solution 0, too, and the other one of prefix 1.
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
    # A rollout of the bare problem that runs through prefixes 1 and 2, then its own way.
    assert table.record(RecordedRollout(prefix=0, outcome=WRONG, path=(1, 2))) == {0, 1, 2}
    assert table.counts[1, 0].tolist() == [0, 0, 1, 0, 1]
    assert table.counts[1, 1].tolist() == [0, 0, 1, 1, 0]
    assert table.counts[1, 2].tolist() == [0, 0, 1, 0, 0]
    # A success from prefix 3 shows that prefix 1 still leads there; the bare problem is no news.
    assert table.record(RecordedRollout(prefix=3, outcome=RIGHT)) == {0, 1}
    assert table.counts[0, 0].tolist() == [0, 1, 0, 0, 0]
    assert table.counts[0, 1].tolist() == [0, 0, 1, 0, 0]
    assert table.counts[0, 2].sum() == 0
    # For values each outcome counts where its sample started, and only there.
    right, wrong = table.once()[:2]
    assert wrong[0].tolist() == [0, 0, 0, 0, 1] and right[0].tolist() == [0, 1, 0, 0, 0]
    assert right[1].sum() == 0
    # A failure there shows nothing of prefix 1.
    assert table.record(RecordedRollout(prefix=3, outcome=WRONG)) == {0}


@given(
    chances=st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=9),
    agreement=st.booleans(),
    kind=st.sampled_from(["right", "found", "lost"]),
    min_gain=st.floats(1e-9, 1.0),
)
def test_calibration_keeps_the_likeliest_and_the_order(
    chances: list[float], agreement: bool, kind: Kind, min_gain: float
) -> None:
    posterior = np.array(chances) / sum(chances)
    moved = calibrated(posterior, agreement=agreement, kind=kind, min_gain_per_token=min_gain)
    assert moved.sum() == pytest.approx(1) and (moved >= 0).all()
    mode = int(np.argmax(posterior))
    assert moved[mode] == moved.max()
    rest = np.delete(np.arange(len(moved)), mode)
    ratios = moved[rest] / posterior[rest]
    assert np.allclose(ratios, ratios[0])


def test_calibration_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = Curve(tuple((np.log(3.0) + 0.5 * KNOTS).tolist()), np.log(2.0), np.log(3.0))
    monkeypatch.setitem(judging.CURVES, (False, "lost"), curve)
    # At a least gain of 0.001 in five steps odds of 16 become 3 * sqrt(16) = 12.
    posterior = np.array([1 / 85, 16 / 17, 1 / 85, 1 / 85, 1 / 85, 1 / 85])
    moved = calibrated(posterior, agreement=False, kind="lost", min_gain_per_token=1e-3)
    assert moved == pytest.approx([1 / 65, 12 / 13, *[1 / 65] * 4])
    # A decade less halves them; less still is as far as the curve goes.
    for min_gain in (1e-4, 1e-9):
        moved = calibrated(posterior, agreement=False, kind="lost", min_gain_per_token=min_gain)
        assert moved[1] == pytest.approx(6 / 7)
    # Two steps less: 12 / 9; so it is with three less.
    for steps in (3, 2):
        posterior = np.array([1 / (17 * steps), 16 / 17, *[1 / (17 * steps)] * (steps - 1)])
        moved = calibrated(posterior, agreement=False, kind="lost", min_gain_per_token=1e-3)
        assert moved[1] == pytest.approx(4 / 7)
    low = Curve((-9.0,) * len(KNOTS), 0.0, 0.0)
    monkeypatch.setitem(judging.CURVES, (False, "lost"), low)
    # The second keeps its share of the rest, 3/4, and is not overtaken: 4/7 * 3/4 = 3/7.
    moved = calibrated(
        np.array([0.5, 0.375, 0.125]), agreement=False, kind="lost", min_gain_per_token=1e-3
    )
    assert moved == pytest.approx([3 / 7, 3 / 7, 1 / 7], abs=1e-5) and moved.argmax() == 0


@pytest.mark.slow
def test_the_curve_is_found_again() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(1.0, 2.0, 60_000)
    gains, steps = 10 ** rng.uniform(-4, -2.6, len(odds)), rng.integers(3, 9, len(odds))
    shifts = np.array([covariates(p, n) for p, n in zip(gains, steps, strict=True)])
    chance = 0.4 + 0.6 * np.clip(odds, -1.5, 5.0) + shifts @ [-0.5, 0.2]
    right = rng.random(len(odds)) < 1 / (1 + np.exp(-chance))
    found = fit_curve(1 / (1 + np.exp(-odds)), shifts, right)
    assert found.knots == pytest.approx((0.4 + 0.6 * KNOTS).tolist(), abs=0.3)
    assert list(found.knots) == sorted(found.knots)
    assert found.gain == pytest.approx(-0.5, abs=0.1)
    assert found.steps == pytest.approx(0.2, abs=0.05)


def test_the_kind_of_a_solution_follows_from_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Kind] = []

    def record(posterior: np.ndarray, *, kind: Kind, agreement: bool, **_: object) -> np.ndarray:
        if not agreement:  # each solution is judged by both readings
            seen.append(kind)
        return posterior

    monkeypatch.setattr(judging, "calibrated", record)

    def kinds(*paths: SolutionPath, right_at: int | None = None) -> list[Kind]:
        seen.clear()
        one = make("posterior", paths, answer_class="number", min_gain_per_token=1.0, rollouts=2)
        counts = [Counts(num_right=int(i == right_at), num_wrong=1) for i in range(4)]
        one.judge(counts)
        return list(seen)

    wrong, other = (
        SolutionPath(prefixes=(1,), outcome=WRONG),
        SolutionPath(prefixes=(2, 3), outcome=WRONG),
    )
    assert kinds(wrong, other) == ["lost", "lost"]
    assert kinds(wrong, other, right_at=1) == ["found", "lost"]
    assert kinds(wrong, other, right_at=0) == ["found", "found"]
    assert kinds(wrong, replace(other, outcome=RIGHT)) == ["found", "right"]
    given = replace(other, outcome=RIGHT, sampled=False)
    assert kinds(wrong, given) == ["lost", "right"]
