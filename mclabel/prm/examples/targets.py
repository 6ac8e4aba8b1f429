"""What a scorer learns from a labelled solution: a target, and a weight, for every step.

Shards store counts and verdicts; every view of them that a scorer can be trained on is derived
here, when it is read. A target is None where nothing is known of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from mclabel.records import LabeledSolution, Outcome, StepLabel
from mclabel.stats.values import advantages, relative_progress

Target = Literal[
    "hard",
    "soft",
    "posterior",
    "advantage",
    "progress",
    "neutral",
    "outcome",
    "outcome_steps",
]
"""`hard`: 1 where the policy still recovers, 0 where not (Math-Shepherd, arXiv 2312.08935).
`soft`: the estimated value itself, or a Bayesian estimator's mean. `posterior`: the chance that no
step so far is wrong, of a Bayesian estimator. `advantage`: (1 + V(t) - V(t-1)) / 2, so that 0.5 is
a step that changes nothing (PAV, arXiv 2410.08146). `progress`: 1 where V(t) / V(t-1) is at least
0.8 (GenPRM, arXiv 2504.00891). `neutral`: three classes, 0 wrong, 0.5 neutral, 1 sound, as PRM800K
rates them (arXiv 2305.20050); of rollouts a value that is not 0 and at most half of the bare
problem's is neutral. `outcome`: the last step alone, 1 for a right answer: an outcome reward model
(ORM). `outcome_steps`: the same at every step (arXiv 2110.14168)."""

OUTCOME_TARGETS: tuple[Target, ...] = ("outcome", "outcome_steps")
WRONG, NEUTRAL, SOUND = 0.0, 0.5, 1.0
MIN_PROGRESS = 0.8
MIN_SOUND = 0.5
"""Of the bare problem's value: a step worth more counts as sound among three classes."""

Weights = Literal["equal", "rollouts", "interval"]
"""`equal`; `rollouts`: their number as a share of the most that a step of the solution has;
`interval`: 1 less the width of the label's interval. Labels that do not rest on rollouts of their
own (the outcome at the last step, implied ones, those of other people) weigh 1."""


def step_targets(row: LabeledSolution, target: Target) -> tuple[float | None, ...]:
    """The target of every step of a solution, in [0, 1]."""
    steps = row.steps
    if target == "hard":
        return tuple(_hard(step) for step in steps)
    if target == "soft":
        return tuple(_value(step) for step in steps)
    if target == "posterior":
        return _posterior(row)
    if target == "neutral":
        return tuple(_three(step, row.root_value) for step in steps)
    if target in OUTCOME_TARGETS:
        known = {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}.get(row.solution.outcome)
        earlier = known if target == "outcome_steps" else None
        return (*[earlier] * (len(steps) - 1), known) if steps else ()
    values = [_value(step) for step in steps]
    if target == "advantage":
        found = advantages(values, row.root_value)
        return tuple(None if a is None else (1 + a) / 2 for a in found)
    ratios = relative_progress(values, row.root_value)
    return tuple(None if r is None else float(r >= MIN_PROGRESS) for r in ratios)


def step_weights(row: LabeledSolution, how: Weights) -> tuple[float, ...]:
    """The weight of every step of a solution in the loss, in [0, 1]."""
    if how == "equal":
        return (1.0,) * len(row.steps)
    most = max((step.counts.num_rollouts for step in row.steps), default=0)
    return tuple(_weight(step, how, most) for step in row.steps)


def until_first_error(
    targets: Sequence[float | None], first_error: int | None
) -> tuple[float | None, ...]:
    """The targets up to and including the first wrong step (Let's Verify, arXiv 2305.20050)."""
    end = len(targets) if first_error is None else first_error + 1
    return (*targets[:end], *[None] * (len(targets) - end))


def _hard(step: StepLabel) -> float | None:
    return None if step.hard is None else float(step.hard)


def _value(step: StepLabel) -> float | None:
    return step.mean if step.value is None else step.value


def _posterior(row: LabeledSolution) -> tuple[float | None, ...]:
    if row.posterior is None:
        return (None,) * len(row.steps)
    wrong = accumulate(row.posterior[: len(row.steps)])
    return tuple(min(1.0, max(0.0, 1 - chance)) for chance in wrong)


def _three(step: StepLabel, root_value: float | None) -> float | None:
    value = _value(step)
    if value is None or step.hard is False:
        return _hard(step)
    if value <= 0:
        return WRONG
    return SOUND if value > MIN_SOUND * (1.0 if root_value is None else root_value) else NEUTRAL


def _weight(step: StepLabel, how: Weights, most: int) -> float:
    if step.source in ("outcome", "implied", "given") or not step.counts.num_rollouts:
        return 1.0
    if how == "rollouts":
        return step.counts.num_rollouts / most
    if step.low is None or step.high is None:
        return 1.0
    return 1 - (step.high - step.low)
