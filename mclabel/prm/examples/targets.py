"""Targets and weights of the steps of labelled solutions, from which a scorer learns.

Shards store counts and verdicts; every view of them that a scorer can be trained on is derived
here, when it is read. A target is None for a step without a label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mclabel.core.boundary import Boundary, miscounted
from mclabel.core.components import find_component
from mclabel.core.errors import DataError
from mclabel.core.records import Chance, LabeledSolution, Many, Outcome, StepLabel
from mclabel.core.stats.values import advantages
from mclabel.domains.registry import carries_truth, true_first_error

WRONG, NEUTRAL, SOUND = 0.0, 0.5, 1.0
MIN_SOUND = 0.5
"""Share of the value of the problem alone above which a step is sound among three classes."""

Targets = tuple[float | None, ...]
"""One per step, in [0, 1]; None where there is no label."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A view of the labels of a solution."""

    derive: Callable[[LabeledSolution], Targets]
    """Gives the target of every step."""
    is_outcome: bool = False
    """It holds nothing but the outcome: what learns it is an outcome reward model (ORM)."""
    has_neutral: bool = False
    """Three classes, of which 0.5 is one, in place of a chance."""
    is_change: bool = False
    """True if the target is the change by a step; 0.5 is a step that changes nothing."""


def target_of(name: str) -> Target:
    """Return the target with a name in `TARGETS` or of another package, or at `module:object`.

    A plain function from a labelled solution to targets is one, too.
    """
    component = find_component("targets", name)
    return component if isinstance(component, Target) else Target(derive=component)


def step_targets(row: LabeledSolution, target: str) -> Targets:
    """Return the target of every step of a solution, in [0, 1].

    Raises:
        ComponentError: a target of somebody's own fails, or gives something else.
    """
    chosen, boundary = target_of(target), Boundary("targets", target)
    return boundary.call(
        "derive", chosen.derive, row, result_type=Many[Chance | None], rule=_not_one_each
    )


def step_weights(row: LabeledSolution, weights: str) -> tuple[float, ...]:
    """Return the weight of every step of a solution in the loss, in [0, 1].

    Args:
        row: the labelled solution.
        weights: name of the weighting scheme.

    Raises:
        ComponentError: a user's own scheme fails, or returns no valid weights.
    """
    weigh, boundary = find_component("weights", weights), Boundary("weights", weights)
    row_weights: tuple[float, ...] = boundary.call(
        "weights", weigh, row, result_type=Many[Chance], rule=_not_one_each
    )
    return row_weights


def _not_one_each(values: Sequence[object], row: LabeledSolution) -> str | None:
    return miscounted("numbers for", values, "step", len(row.steps))


def _soft_labels(row: LabeledSolution) -> Targets:
    return tuple(step.estimate for step in row.steps)


def _no_error_so_far(row: LabeledSolution) -> Targets:
    if row.posterior is None:
        return (None,) * len(row.steps)
    wrong = accumulate(row.posterior[: len(row.steps)])
    return tuple(min(1.0, max(0.0, 1 - chance)) for chance in wrong)


def _states(row: LabeledSolution) -> Targets:
    sound = {"sound": 1.0, "recovered": 1.0, "error": 0.0, "carried": 0.0, None: None}
    return tuple(sound[step.state] for step in row.steps)


def _advantages(row: LabeledSolution) -> Targets:
    gains = advantages(_soft_labels(row), row.root_value)
    return tuple(None if gain is None else (1 + gain) / 2 for gain in gains)


def _exact_truth(row: LabeledSolution) -> Targets:
    if not carries_truth(row.problem.meta):
        raise DataError(
            f"problem {row.problem.id}: target=exact works only for arith and pyarith, whose true "
            "labels are known. Choose another target"
        )
    steps = [step.text for step in row.solution.steps]
    error = true_first_error(row.problem.meta, steps)
    sound = len(steps) if error is None else error
    return (*[1.0] * sound, *[0.0] * (len(steps) - sound))


def _outcome(row: LabeledSolution) -> float | None:
    return {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}.get(row.solution.outcome)


def _hard(step: StepLabel) -> float | None:
    return None if step.hard is None else float(step.hard)


def _class(step: StepLabel, root_value: float | None) -> float | None:
    value = step.estimate
    if value is None or step.hard is False:
        return _hard(step)
    if value <= 0:
        return WRONG
    return SOUND if value > MIN_SOUND * (1.0 if root_value is None else root_value) else NEUTRAL


HARD = Target(derive=lambda row: tuple(map(_hard, row.steps)))
"""1 where the policy still recovers, 0 where not (Math-Shepherd, arXiv 2312.08935)."""
SOFT = Target(derive=_soft_labels)
"""The estimated value itself, or a Bayesian estimator's mean."""
POSTERIOR = Target(derive=_no_error_so_far)
"""The chance that no step so far is wrong, from a Bayesian estimator."""
STATES = Target(derive=_states)
"""1 where nothing stands wrong, also behind an error that the solution has repaired, 0 where
something does (arXiv 2505.14391); by the estimator `trace`."""
ADVANTAGE = Target(derive=_advantages, is_change=True)
"""(1 + V(t) - V(t-1)) / 2, so that 0.5 is a step that changes nothing (PAV, arXiv 2410.08146)."""
THREE_CLASSES = Target(
    derive=lambda row: tuple(_class(step, row.root_value) for step in row.steps), has_neutral=True
)
"""0 wrong, 0.5 neutral, 1 sound, as PRM800K rates them (arXiv 2305.20050); with labels from
rollouts, a value that is not 0 and at most half of the problem alone's is neutral."""
EXACT = Target(derive=_exact_truth)
"""1 before the first wrong step in truth, 0 from there on; of problems of arith and pyarith. What
labels are worth is measured against it."""
OUTCOME = Target(
    derive=lambda row: tuple(
        _outcome(row) if number == len(row.steps) else None
        for number in range(1, len(row.steps) + 1)
    ),
    is_outcome=True,
)
"""1 for a right answer, at the last step alone: an outcome reward model (ORM)."""
OUTCOME_STEPS = Target(derive=lambda row: (_outcome(row),) * len(row.steps), is_outcome=True)
"""1 for a right answer, at every step (arXiv 2110.14168)."""

TARGETS: Mapping[str, str] = {
    "hard": "mclabel.prm.examples.targets:HARD",
    "soft": "mclabel.prm.examples.targets:SOFT",
    "posterior": "mclabel.prm.examples.targets:POSTERIOR",
    "states": "mclabel.prm.examples.targets:STATES",
    "advantage": "mclabel.prm.examples.targets:ADVANTAGE",
    "neutral": "mclabel.prm.examples.targets:THREE_CLASSES",
    "exact": "mclabel.prm.examples.targets:EXACT",
    "outcome": "mclabel.prm.examples.targets:OUTCOME",
    "outcome_steps": "mclabel.prm.examples.targets:OUTCOME_STEPS",
}
"""Name in a configuration, and where the target stands."""


def equal_weights(row: LabeledSolution) -> tuple[float, ...]:
    """Return the same weight for every step."""
    return (1.0,) * len(row.steps)


def rollout_weights(row: LabeledSolution) -> tuple[float, ...]:
    """Return each step's number of rollouts relative to the solution's largest number.

    Those of the completer that its value is of, where there are several.

    Labels that do not rest on rollouts of their own (the outcome at the last step, implied ones,
    those of other people) weigh 1.
    """
    counts = [row.value_counts(number).num_rollouts for number in range(len(row.steps))]
    most = max(1, max(counts, default=0))
    return tuple(
        count / most if _rests_on_rollouts(step) else 1.0
        for count, step in zip(counts, row.steps, strict=True)
    )


def interval_weights(row: LabeledSolution) -> tuple[float, ...]:
    """Return 1 minus the width of each label's interval; labels as in `rollout_weights` weigh 1."""
    return tuple(
        1 - (step.high - step.low)
        if _rests_on_rollouts(step) and step.low is not None and step.high is not None
        else 1.0
        for step in row.steps
    )


def _rests_on_rollouts(step: StepLabel) -> bool:
    return (
        step.source not in ("outcome", "implied", "given", "judge") and step.counts.num_rollouts > 0
    )


WEIGHTS: Mapping[str, str] = {
    "equal": "mclabel.prm.examples.targets:equal_weights",
    "rollouts": "mclabel.prm.examples.targets:rollout_weights",
    "interval": "mclabel.prm.examples.targets:interval_weights",
}
"""Name in a configuration, and where the function stands."""
