"""Targets and weights of the steps of labelled solutions, from which a scorer learns.

Label shards store counts and verdicts. This module derives targets from them when labels are read
for training. A target is None for a step without a label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mclabel.core.boundary import Boundary, check_item_count
from mclabel.core.components import find_component
from mclabel.core.errors import DataError
from mclabel.core.records import LabeledSolution, Outcome, Probability, StepLabel, TupleOf
from mclabel.core.stats.values import compute_advantages
from mclabel.domains.registry import find_true_first_error, has_known_truth

WRONG, NEUTRAL, SOUND = 0.0, 0.5, 1.0
MIN_SOUND = 0.5
"""Value above which the target `neutral` calls a step sound, as a fraction of the value before the
first step. The value is the probability of a right answer."""

Targets = tuple[float | None, ...]
"""Target of each step, in [0, 1]; None for a step without a label."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A way to derive training targets from the labels of a solution."""

    derive: Callable[[LabeledSolution], Targets]
    """Function that returns the target of every step."""
    is_outcome: bool = False
    """True if the targets contain only the solution's outcome. A model trained on them is an
    outcome reward model (ORM)."""
    has_neutral: bool = False
    """True if the targets are three classes (0 wrong, 0.5 neutral, 1 sound) instead of
    probabilities."""
    is_change: bool = False
    """True if the target is the change of the value by a step; 0.5 stands for no change."""


def find_target(name: str) -> Target:
    """Return the target of a given name.

    Args:
        name: name in `TARGETS`, name registered by another package, or `module:object`. The object
            may be a `Target`, or a function from a labelled solution to targets.
    """
    component = find_component("targets", name)
    return component if isinstance(component, Target) else Target(derive=component)


def compute_step_targets(row: LabeledSolution, target: str) -> Targets:
    """Return the target of every step of a solution, in [0, 1]; None for unlabelled steps.

    Raises:
        ComponentError: a user's own target function fails, or returns invalid targets.
    """
    chosen, boundary = find_target(target), Boundary("targets", target)
    return boundary.call(
        "derive",
        chosen.derive,
        row,
        result_type=TupleOf[Probability | None],
        rule=_find_count_fault,
    )


def compute_step_weights(row: LabeledSolution, weighting_name: str) -> tuple[float, ...]:
    """Return the weight of every step of a solution in the loss, in [0, 1].

    Args:
        row: the labelled solution.
        weighting_name: name of the weighting scheme.

    Raises:
        ComponentError: a user's own scheme fails, or returns no valid weights.
    """
    weigh, boundary = find_component("weights", weighting_name), Boundary("weights", weighting_name)
    row_weights: tuple[float, ...] = boundary.call(
        "weights", weigh, row, result_type=TupleOf[Probability], rule=_find_count_fault
    )
    return row_weights


def _find_count_fault(values: Sequence[object], row: LabeledSolution) -> str | None:
    return check_item_count("numbers for", values, "step", len(row.steps))


def _derive_soft_labels(row: LabeledSolution) -> Targets:
    return tuple(step.estimate for step in row.steps)


def _derive_no_error_probabilities(row: LabeledSolution) -> Targets:
    if row.posterior is None:
        return (None,) * len(row.steps)
    wrong = accumulate(row.posterior[: len(row.steps)])
    return tuple(min(1.0, max(0.0, 1 - chance)) for chance in wrong)


def _derive_state_targets(row: LabeledSolution) -> Targets:
    sound = {"sound": 1.0, "recovered": 1.0, "error": 0.0, "carried": 0.0, None: None}
    return tuple(sound[step.state] for step in row.steps)


def _derive_advantage_targets(row: LabeledSolution) -> Targets:
    gains = compute_advantages(_derive_soft_labels(row), row.root_value)
    return tuple(None if gain is None else (1 + gain) / 2 for gain in gains)


def _derive_exact_targets(row: LabeledSolution) -> Targets:
    if not has_known_truth(row.problem.meta):
        raise DataError(
            f"problem {row.problem.id}: target=exact works only for arith and pyarith, whose true "
            "labels are known. Choose another target"
        )
    steps = [step.text for step in row.solution.steps]
    error = find_true_first_error(row.problem.meta, steps)
    sound = len(steps) if error is None else error
    return (*[1.0] * sound, *[0.0] * (len(steps) - sound))


def _derive_outcome_target(row: LabeledSolution) -> float | None:
    return {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}.get(row.solution.outcome)


def _derive_hard_target(step: StepLabel) -> float | None:
    return None if step.hard is None else float(step.hard)


def _derive_ternary_target(step: StepLabel, root_value: float | None) -> float | None:
    value = step.estimate
    if value is None or step.hard is False:
        return _derive_hard_target(step)
    if value <= 0:
        return WRONG
    return SOUND if value > MIN_SOUND * (1.0 if root_value is None else root_value) else NEUTRAL


HARD = Target(derive=lambda row: tuple(map(_derive_hard_target, row.steps)))
"""Hard labels: 1 if the policy still recovers after the step, else 0 (Math-Shepherd, arXiv
2312.08935)."""
SOFT = Target(derive=_derive_soft_labels)
"""Soft labels: the estimated probability of a right answer after the step, which is a posterior
mean with a Bayesian estimator."""
POSTERIOR = Target(derive=_derive_no_error_probabilities)
"""Probability that neither the step nor an earlier one is wrong, from a Bayesian estimator."""
STATES = Target(derive=_derive_state_targets)
"""Targets from the states of the estimator `trace`: 0 while an error is not repaired, else 1
(arXiv 2505.14391). Steps after a repaired error therefore have the target 1."""
ADVANTAGE = Target(derive=_derive_advantage_targets, is_change=True)
"""Change of the value V by step t: (1 + V(t) - V(t-1)) / 2, so that 0.5 stands for no change (PAV,
arXiv 2410.08146)."""
THREE_CLASSES = Target(
    derive=lambda row: tuple(_derive_ternary_target(step, row.root_value) for step in row.steps),
    has_neutral=True,
)
"""Three classes as in PRM800K (arXiv 2305.20050): 0 wrong, 0.5 neutral, 1 sound. With labels from
rollouts, a step is neutral if its value is above 0 but at most half of the value before the first
step."""
EXACT = Target(derive=_derive_exact_targets)
"""True labels of the problems of arith and pyarith: 1 before the first wrong step, 0 from that step
on. Estimated labels are evaluated against these."""
OUTCOME = Target(
    derive=lambda row: tuple(
        _derive_outcome_target(row) if number == len(row.steps) else None
        for number in range(1, len(row.steps) + 1)
    ),
    is_outcome=True,
)
"""Outcome of the solution at the last step: 1 for a right answer, 0 for a wrong one. Other steps
have no target. A model trained on it is an outcome reward model (ORM)."""
OUTCOME_STEPS = Target(
    derive=lambda row: (_derive_outcome_target(row),) * len(row.steps), is_outcome=True
)
"""Outcome of the solution at every step: 1 for a right answer, 0 for a wrong one (arXiv
2110.14168)."""

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
"""Built-in targets: the name in a configuration, and the `module:object` path."""


def weight_equally(row: LabeledSolution) -> tuple[float, ...]:
    """Return the same weight for every step."""
    return (1.0,) * len(row.steps)


def weight_by_num_rollouts(row: LabeledSolution) -> tuple[float, ...]:
    """Return each step's number of rollouts, divided by the largest number in the solution.

    If several models (completers) sampled rollouts, only those of the completer that gives the
    step's value count. A label without rollouts of its own has weight 1. These are
    the final outcome, derived labels, and labels given by people or judges.
    """
    counts = [row.value_counts(number).num_rollouts for number in range(len(row.steps))]
    most = max(1, max(counts, default=0))
    return tuple(
        count / most if _is_estimated_from_rollouts(step) else 1.0
        for count, step in zip(counts, row.steps, strict=True)
    )


def weight_by_interval_width(row: LabeledSolution) -> tuple[float, ...]:
    """Return 1 minus the width of each label's confidence interval.

    A label without rollouts of its own, such as the outcome at the last step, has weight 1.
    """
    return tuple(
        1 - (step.high - step.low)
        if _is_estimated_from_rollouts(step) and step.low is not None and step.high is not None
        else 1.0
        for step in row.steps
    )


def _is_estimated_from_rollouts(step: StepLabel) -> bool:
    return (
        step.source not in ("outcome", "implied", "given", "judge") and step.counts.num_rollouts > 0
    )


WEIGHTS: Mapping[str, str] = {
    "equal": "mclabel.prm.examples.targets:weight_equally",
    "rollouts": "mclabel.prm.examples.targets:weight_by_num_rollouts",
    "interval": "mclabel.prm.examples.targets:weight_by_interval_width",
}
"""Built-in weights: the name in a configuration, and the `module:function` path."""
