"""Simulated solutions with known first errors and prefix values, and scripted judges.

The rollouts are evaluated as in the pipeline, by priors that are fitted to the whole simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import AUTHOR
from mclabel.judge.consensus.models import FirstErrorJudgeModel, JudgeModel, ScorerModel
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.fit import fit_priors
from mclabel.labeling.estimators.posterior.plan import ChainEvidence, infer_first_errors

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAIR = (0.03, 0.7, 0.5)
"""Rates of a fair judge: its chances to object to a sound step, to the first wrong step, and to a
later step.
"""
RANDOM = (0.2, 0.2, 0.2)
LONGEST = 9
"""Number of steps of the longest solution."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A simulated run whose truth is known."""

    rng: np.random.Generator
    errors: Ints
    """Array [solution]: index of the first wrong step; the number of steps if no step is wrong."""
    num_steps: Ints
    chances: Floats
    """Array [solution, T + 1]: chances of the first errors according to the rollouts."""
    labels: Ints
    """Array [solution]: the first step from which no rollout ends right; the number of steps if
    there is no such step.
    """

    def judge(self, rates: Sequence[float] = FAIR) -> Ints:
        """Return the first errors named by a judge of these rates that reads step after step."""
        step, error = np.arange(LONGEST), self.errors[:, None]
        chance = np.where(step < error, rates[0], np.where(step == error, rates[1], rates[2]))
        return self._first_steps_found(self.rng.random(chance.shape) < chance)

    def repeating(self, named: Ints, share: float, rates: Sequence[float] = FAIR) -> Ints:
        """Return the first errors of a judge that repeats another judge on some solutions.

        `share` is the chance that a solution's error is repeated. On the other solutions the judge
        has its own rates.
        """
        return np.where(self.rng.random(len(named)) < share, named, self.judge(rates))

    def scores(self) -> Floats:
        """Return a PRM's scores [solution, T]; the scores of one solution share an error."""
        is_sound = np.arange(LONGEST) < self.errors[:, None]
        noise = self.rng.normal(size=is_sound.shape)
        noise += 0.5 * self.rng.normal(size=(len(noise), 1))
        return np.asarray(1 / (1 + np.exp(-1.5 * (2.0 * is_sound - 1) - noise)))

    def below(self, scores: Floats, threshold: float) -> Ints:
        """Return the first errors that a PRM names by a threshold."""
        return self._first_steps_found(scores < threshold)

    def location_model(self, named: Ints) -> FirstErrorJudgeModel:
        """Return the model of a judge that names first errors."""
        sureness = np.zeros(len(named), dtype=np.int64)
        return FirstErrorJudgeModel(
            num_steps=self.num_steps, named_steps=named, sureness_classes=sureness
        )

    def scoring(self, scores: Floats) -> ScorerModel:
        """Return the model of a judge that scores steps."""
        rows = [row[:steps].tolist() for row, steps in zip(scores, self.num_steps, strict=True)]
        return ScorerModel.from_scores(rows, self.num_steps)

    def right(self, chances: Floats) -> float:
        """Return the share of solutions whose likeliest first error is the true one."""
        return float((chances.argmax(1) == self.errors).mean())

    def _first_steps_found(self, finds: NDArray[np.bool_]) -> Ints:
        finds = finds & (np.arange(LONGEST) < self.num_steps[:, None])
        return np.where(finds.any(1), np.argmax(finds, 1), self.num_steps)


def simulated(seed: int, count: int, rollouts: int) -> World:
    """Simulate solutions with 4 to 9 steps, each of which is wrong with a chance of 8%.

    Sound prefixes mostly have values of 0.5 to 0.9, and some almost zero. After an error, one
    solution in four is repaired now and then.

    Args:
        seed: random seed of the whole simulation, including its judges.
        count: number of solutions.
        rollouts: number of rollouts from each prefix.
    """
    rng = np.random.default_rng(seed)
    num_steps = rng.integers(4, LONGEST + 1, count)
    step = np.arange(LONGEST)
    is_wrong = (rng.random((count, LONGEST)) < 0.08) & (step < num_steps[:, None])
    errors = np.where(is_wrong.any(1), np.argmax(is_wrong, 1), num_steps)
    drift = np.cumsum(rng.normal(0.15, 0.4, (count, LONGEST)), 1)
    sound = 1 / (1 + np.exp(-rng.normal(1.0, 1.2, (count, 1)) - drift))
    repaired = rng.uniform(0.02, 0.3, (count, LONGEST))
    lucky = np.where(rng.random((count, 1)) < 0.25, repaired, 0.002)
    values = np.where(step < errors[:, None], sound, lucky)
    right = rng.binomial(rollouts, values)
    ends = np.minimum(lucky[np.arange(count), num_steps - 1], 0.1)
    outcome = rng.random(count) < np.where(errors == num_steps, 0.98, ends)
    failed = np.where(step < num_steps[:, None] - 1, right == 0, ~outcome[:, None])
    failed &= step < num_steps[:, None]
    return World(
        rng=rng,
        errors=errors,
        num_steps=num_steps,
        chances=_chances(right, rollouts, outcome, num_steps),
        labels=np.where(failed.any(1), np.argmax(failed, 1), num_steps),
    )


def _chances(right: Ints, rollouts: int, outcome: NDArray[np.bool_], num_steps: Ints) -> Floats:
    """Return the posterior estimator's chances for rollouts from each prefix [solution, T + 1]."""
    evidence = [
        _evidence(right[row, : steps - 1], rollouts, bool(outcome[row]))
        for row, steps in enumerate(num_steps.tolist())
    ]
    fitted = fit_priors(
        {"number": [{AUTHOR: solution_evidence} for solution_evidence in evidence]}
    ).rounded_as_stored
    priors = fitted.for_completer(AUTHOR).for_class("number").with_rare_luck
    requests = [
        ChainEvidence(
            num_steps=solution_evidence.num_steps,
            counts=np.stack(
                [
                    solution_evidence.right,
                    solution_evidence.wrong,
                    solution_evidence.num_taking_same_step,
                    solution_evidence.num_reaching_prefix,
                ]
            ),
            outcome=solution_evidence.outcome,
            external_likelihood=solution_evidence.external_likelihood,
            priors=priors,
            previous_plan=None,
            changed_chains=range(1),
        )
        for solution_evidence in evidence
    ]
    chances = np.zeros((len(num_steps), LONGEST + 1))
    for row, (to_go,) in enumerate(infer_first_errors(requests)):
        steps = int(num_steps[row])
        ordered = np.append(to_go[steps:0:-1], to_go[0])
        chances[row, : steps + 1] = ordered / ordered.sum()
    return chances


def _evidence(right: Ints, rollouts: int, outcome: bool) -> Evidence:
    """Return one solution's rollout evidence.

    Its prefixes exclude the bare problem and the whole solution.
    """
    steps = len(right) + 1
    counts = np.zeros((2, 1, steps + 1))
    counts[0, 0, 1:steps] = right[::-1]
    counts[1, 0, 1:steps] = rollouts - right[::-1]
    nothing = np.zeros((1, steps + 1))
    return Evidence(
        num_steps=np.array([steps]),
        right=counts[0],
        wrong=counts[1],
        num_taking_same_step=nothing,
        num_reaching_prefix=nothing,
        outcome=np.array([[not outcome, outcome]], dtype=np.float64),
        external_likelihood=nothing + 1,
    )


def scripted(world: World) -> dict[str, Mapping[str, JudgeModel]]:
    """Return sets of judges by a description of the set."""
    fair, random, scores = world.judge(), world.judge(RANDOM), world.scores()
    location_model = world.location_model
    thresholds = {str(at): location_model(world.below(scores, at)) for at in (0.3, 0.5, 0.7)}
    five = [world.judge() for _ in range(5)]
    echoes = [world.repeating(fair, 0.8) for _ in range(5)]
    return {
        "a fair judge": {"fair": location_model(fair)},
        "the same twice": _copy_model(location_model(fair), 2),
        "the same five times": _copy_model(location_model(fair), 5),
        "five that repeat it on 80%": {
            str(n): location_model(echo) for n, echo in enumerate(echoes)
        },
        "five independent fair judges": {
            str(n): location_model(judge) for n, judge in enumerate(five)
        },
        "a random judge": {"random": location_model(random)},
        "the same five times, random": _copy_model(location_model(random), 5),
        "a fair judge and a random one five times": {
            "fair": location_model(fair), **_copy_model(location_model(random), 5)
        },
        "a PRM at .3": {"0.3": thresholds["0.3"]},
        "a PRM at .5": {"0.5": thresholds["0.5"]},
        "a PRM at .7": {"0.7": thresholds["0.7"]},
        "that PRM at three thresholds": thresholds,
        "its scores": {"scores": world.scoring(scores)},
        "its scores twice": _copy_model(world.scoring(scores), 2),
        "its scores and a threshold": {
            "scores": world.scoring(scores), "0.5": thresholds["0.5"]
        },
        "a copier of the labels": {"copier": location_model(world.labels)},
        "a fair judge and a copier of the labels": {
            "fair": location_model(fair), "copier": location_model(world.labels)
        },
    }  # fmt: skip


def _copy_model(model: JudgeModel, count: int) -> dict[str, JudgeModel]:
    return {f"copy {number}": model for number in range(count)}
