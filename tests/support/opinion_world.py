"""Solutions of known first errors, with rollouts from prefixes of known value, and scripted judges.

The rollouts are read as the pipeline reads them: by priors that are fitted to the whole world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import AUTHOR
from mclabel.judge.consensus.models import JudgeModel, Locations, Scores
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.fit import fit_priors
from mclabel.labeling.estimators.posterior.plan import PlanRequest, error_beliefs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAIR = (0.03, 0.7, 0.5)
"""Chances to find fault with a sound step, the first wrong one, a later one."""
RANDOM = (0.2, 0.2, 0.2)
LONGEST = 9
"""Steps of the longest solution."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A run whose truth is known."""

    rng: np.random.Generator
    errors: Ints
    """[solution]: the first wrong step, the number of steps for none."""
    num_steps: Ints
    chances: Floats
    """[solution, T + 1]: what the rollouts show."""
    labels: Ints
    """[solution]: the first step from which no rollout ends right, the number of steps for none."""

    def judge(self, rates: Sequence[float] = FAIR) -> Ints:
        """What a judge of these rates names, who reads step after step."""
        step, error = np.arange(LONGEST), self.errors[:, None]
        chance = np.where(step < error, rates[0], np.where(step == error, rates[1], rates[2]))
        return self._first(self.rng.random(chance.shape) < chance)

    def repeating(self, named: Ints, share: float, rates: Sequence[float] = FAIR) -> Ints:
        """What a judge names that repeats another on such a share, and else has its own rates."""
        return np.where(self.rng.random(len(named)) < share, named, self.judge(rates))

    def scores(self) -> Floats:
        """A PRM's numbers, [solution, T]; those of one solution are off together."""
        is_sound = np.arange(LONGEST) < self.errors[:, None]
        noise = self.rng.normal(size=is_sound.shape)
        noise += 0.5 * self.rng.normal(size=(len(noise), 1))
        return np.asarray(1 / (1 + np.exp(-1.5 * (2.0 * is_sound - 1) - noise)))

    def below(self, scores: Floats, threshold: float) -> Ints:
        """What a PRM names by a threshold."""
        return self._first(scores < threshold)

    def naming(self, named: Ints) -> Locations:
        """The model of a judge that names steps."""
        sureness = np.zeros(len(named), dtype=np.int64)
        return Locations(num_steps=self.num_steps, named=named, sureness=sureness)

    def scoring(self, scores: Floats) -> Scores:
        """The model of a judge that scores them."""
        rows = [row[:steps].tolist() for row, steps in zip(scores, self.num_steps, strict=True)]
        return Scores.of(rows, self.num_steps)

    def right(self, chances: Floats) -> float:
        """Share of the solutions whose likeliest first error is the true one."""
        return float((chances.argmax(1) == self.errors).mean())

    def _first(self, finds: NDArray[np.bool_]) -> Ints:
        finds = finds & (np.arange(LONGEST) < self.num_steps[:, None])
        return np.where(finds.any(1), np.argmax(finds, 1), self.num_steps)


def simulated(seed: int, count: int, rollouts: int) -> World:
    """A world of solutions with 4 to 9 steps, of which 8% are the first wrong one.

    Sound prefixes are mostly worth .5 to .9, some almost nothing; behind an error one solution in
    four is repaired now and then.

    Args:
        seed: of everything, the judges included.
        count: solutions.
        rollouts: from each prefix.
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
    """What the posterior estimator makes of rollouts from each prefix, [solution, T + 1]."""
    evidence = [
        _evidence(right[row, : steps - 1], rollouts, bool(outcome[row]))
        for row, steps in enumerate(num_steps.tolist())
    ]
    fitted = fit_priors({"number": [{AUTHOR: one} for one in evidence]}).as_written
    priors = fitted.by(AUTHOR).of("number").with_rare_luck
    requests = [
        PlanRequest(
            num_steps=one.num_steps,
            counts=np.stack([one.right, one.wrong, one.same, one.others]),
            outcome=one.outcome,
            elsewhere=one.elsewhere,
            priors=priors,
            previous=None,
            changed=range(1),
        )
        for one in evidence
    ]
    found = np.zeros((len(num_steps), LONGEST + 1))
    for row, (to_go,) in enumerate(error_beliefs(requests)):
        steps = int(num_steps[row])
        ordered = np.append(to_go[steps:0:-1], to_go[0])
        found[row, : steps + 1] = ordered / ordered.sum()
    return found


def _evidence(right: Ints, rollouts: int, outcome: bool) -> Evidence:
    """Of one solution: rollouts from all prefixes but the problem alone and the whole solution."""
    steps = len(right) + 1
    counts = np.zeros((2, 1, steps + 1))
    counts[0, 0, 1:steps] = right[::-1]
    counts[1, 0, 1:steps] = rollouts - right[::-1]
    nothing = np.zeros((1, steps + 1))
    return Evidence(
        num_steps=np.array([steps]),
        right=counts[0],
        wrong=counts[1],
        same=nothing,
        others=nothing,
        outcome=np.array([[not outcome, outcome]], dtype=np.float64),
        elsewhere=nothing + 1,
    )


def scripted(world: World) -> dict[str, Mapping[str, JudgeModel]]:
    """Sets of judges, by what they are to show."""
    fair, random, scores = world.judge(), world.judge(RANDOM), world.scores()
    naming = world.naming
    thresholds = {str(at): naming(world.below(scores, at)) for at in (0.3, 0.5, 0.7)}
    five = [world.judge() for _ in range(5)]
    echoes = [world.repeating(fair, 0.8) for _ in range(5)]
    return {
        "a fair judge": {"fair": naming(fair)},
        "the same twice": _several(naming(fair), 2),
        "the same five times": _several(naming(fair), 5),
        "five that repeat it on 80%": {str(n): naming(one) for n, one in enumerate(echoes)},
        "five independent fair judges": {str(n): naming(one) for n, one in enumerate(five)},
        "a random judge": {"random": naming(random)},
        "the same five times, random": _several(naming(random), 5),
        "a fair judge and a random one five times": {
            "fair": naming(fair), **_several(naming(random), 5)
        },
        "a PRM at .3": {"0.3": thresholds["0.3"]},
        "a PRM at .5": {"0.5": thresholds["0.5"]},
        "a PRM at .7": {"0.7": thresholds["0.7"]},
        "that PRM at three thresholds": thresholds,
        "its scores": {"scores": world.scoring(scores)},
        "its scores twice": _several(world.scoring(scores), 2),
        "its scores and a threshold": {
            "scores": world.scoring(scores), "0.5": thresholds["0.5"]
        },
        "a copier of the labels": {"copier": naming(world.labels)},
        "a fair judge and a copier of the labels": {
            "fair": naming(fair), "copier": naming(world.labels)
        },
    }  # fmt: skip


def _several(model: JudgeModel, count: int) -> dict[str, JudgeModel]:
    return {f"copy {number}": model for number in range(count)}
