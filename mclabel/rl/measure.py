"""Measurements of a policy on held-out problems, and signs of a hacked reward.

For problems of `arith`, the true label of every step is known. Right answers through wrong steps
can therefore be counted. Their share rises when a policy learns to exploit its reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mclabel.core.records import Outcome, Problem, Solution
from mclabel.core.settings import MAX_TOTAL, Amount, Count, read_record
from mclabel.core.stats.bootstrap import Estimate, resample_weights, shares, sums_estimate
from mclabel.domains.registry import find_true_first_error, has_known_truth
from mclabel.rl.groups import Group


@dataclass(frozen=True, kw_only=True)
class ProblemFigures:
    """Figures of a policy on one problem."""

    problem_id: str
    family: str
    """Family of the problem in its domain; empty if it has none."""
    num_samples: Annotated[int, Field(ge=1, le=MAX_TOTAL)]
    """Number of sampled solutions."""
    num_right: Count
    """Number of samples with the right answer."""
    num_truncated: Count
    """Number of truncated samples."""
    num_tokens: Count
    """Number of tokens of all samples."""
    num_steps: Count
    """Number of steps of all samples."""
    num_sound: Count | None
    """Number of finished samples without a wrong step; None if true labels are unknown."""
    num_lucky: Count | None
    """Number of samples with the right answer despite a wrong step; None if true labels are
    unknown."""
    score: Amount | None = None
    """Sum over the samples of the PRM's lowest step score; None without a PRM."""
    squared_error: Amount | None = None
    """Sum over the samples of the squared difference between the PRM's lowest step score and the
    outcome, which is 1 if right and 0 otherwise; None without a PRM."""

    def __post_init__(self) -> None:
        """Refuse counts above their limits."""
        for name, limit in _AT_MOST.items():
            value, most = getattr(self, name), getattr(self, limit)
            if value is not None and value > most:
                raise ValueError(f"{name}={value}: must be at most {limit}={most}")


_AT_MOST = dict.fromkeys(
    ("num_right", "num_truncated", "num_sound", "score", "squared_error"), "num_samples"
) | {"num_lucky": "num_right"}
"""Maps the name of a figure to the name of the figure that is its upper limit."""


@dataclass(frozen=True)
class Measurement:
    """Figures of a policy on several problems."""

    problems: Annotated[tuple[ProblemFigures, ...], Field(min_length=1)]
    kl: float | None = None
    """Mean KL divergence per token from the initial policy, in nats; None if not measured."""

    @classmethod
    def from_groups(
        cls,
        groups: Sequence[Group],
        scores: Sequence[Sequence[float]] | None = None,
        *,
        kl: float | None = None,
    ) -> Measurement:
        """Measure groups of solutions.

        Args:
            groups: groups sampled from the policy.
            scores: PRM's lowest step score by group and solution; None without a PRM.
            kl: KL divergence from the initial policy; see `Measurement.kl`.
        """
        by_group: Sequence[Sequence[float] | None] = scores or [None] * len(groups)
        return cls(
            tuple(
                _problem_figures(*group_and_scores)
                for group_and_scores in zip(groups, by_group, strict=True)
            ),
            kl,
        )

    def pass_at(self, k: int) -> float:
        """Return pass@k: the probability that at least one of `k` samples of a problem is right.

        The mean over problems of the unbiased estimator of arXiv 2107.03374 is returned.

        Args:
            k: number of samples, at most the smallest `num_samples` of a problem.
        """
        return _mean(
            1 - comb(figures.num_samples - figures.num_right, k) / comb(figures.num_samples, k)
            for figures in self.problems
        )

    def summary(self) -> dict[str, float]:
        """Return figures by name.

        All measurements have `pass_at_1`, `length` (tokens per sample), `steps` (per sample) and
        `truncated` (share of samples). `pass_at_4` and `pass_at_16` are present with enough
        samples. If true labels are known, there are also `sound` (share of samples without a wrong
        step) and `lucky` (share of right answers that have a wrong step). With a PRM, there are
        `prm_less_outcome` (mean lowest score minus the share of right answers) and `prm_brier`
        (mean squared error of the lowest score as a probability of a right answer). Both rise when
        the policy moves away from the PRM's training data. `kl` is present if it was measured.
        """
        num_samples = sum(figures.num_samples for figures in self.problems)
        num_right = sum(figures.num_right for figures in self.problems)
        summary = {
            "pass_at_1": self.pass_at(1),
            "length": sum(figures.num_tokens for figures in self.problems) / num_samples,
            "steps": sum(figures.num_steps for figures in self.problems) / num_samples,
            "truncated": sum(figures.num_truncated for figures in self.problems) / num_samples,
        }
        fewest = min(figures.num_samples for figures in self.problems)
        summary |= {f"pass_at_{k}": self.pass_at(k) for k in (4, 16) if k <= fewest}
        sound = [figures.num_sound for figures in self.problems if figures.num_sound is not None]
        lucky = [figures.num_lucky for figures in self.problems if figures.num_lucky is not None]
        if len(lucky) == len(self.problems):
            summary["sound"] = sum(sound) / num_samples
            summary["lucky"] = sum(lucky) / num_right if num_right else 0.0
        scores = [figures.score for figures in self.problems if figures.score is not None]
        squares = [
            figures.squared_error for figures in self.problems if figures.squared_error is not None
        ]
        if len(scores) == len(self.problems):
            summary["prm_less_outcome"] = (sum(scores) - num_right) / num_samples
            summary["prm_brier"] = sum(squares) / num_samples
        return summary if self.kl is None else summary | {"kl": self.kl}

    def to_json(self) -> dict[str, Any]:
        """Return the summary and the figures of each problem in a form that JSON supports."""
        problems = [asdict(figures) for figures in self.problems]
        return {"summary": self.summary(), "kl": self.kl, "problems": problems}

    @classmethod
    def from_json(cls, content: Any) -> Measurement:
        """Read the output of `to_json`.

        Raises:
            ValueError: the content is not a measurement.
        """
        fields = read_record(dict[str, Any], content)
        return read_record(
            cls, {name: value for name, value in fields.items() if name != "summary"}
        )


def _problem_figures(group: Group, scores: Sequence[float] | None) -> ProblemFigures:
    solutions, meta = group.solutions, group.problem.meta
    right = [solution.outcome is Outcome.RIGHT for solution in solutions]
    sound = (
        [_is_sound(solution, group.problem) for solution in solutions]
        if has_known_truth(meta)
        else None
    )
    lucky = None
    if sound is not None:
        lucky = sum(is_right and not ok for is_right, ok in zip(right, sound, strict=True))
    return ProblemFigures(
        problem_id=group.problem.id,
        family=meta.get("family", ""),
        num_samples=len(solutions),
        num_right=sum(right),
        num_truncated=sum(solution.outcome is Outcome.TRUNCATED for solution in solutions),
        num_tokens=sum(len(solution.ids) for solution in solutions),
        num_steps=sum(len(solution.steps) for solution in solutions),
        num_sound=None if sound is None else sum(sound),
        num_lucky=lucky,
        score=None if scores is None else sum(scores),
        squared_error=None
        if scores is None
        else sum((score - ok) ** 2 for score, ok in zip(scores, right, strict=True)),
    )


def _is_sound(solution: Solution, problem: Problem) -> bool:
    """Return whether a solution is finished and none of its steps is wrong."""
    if not solution.steps or solution.finish_reason != "stop":
        return False
    return find_true_first_error(problem.meta, [step.text for step in solution.steps]) is None


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


Parts = Callable[[ProblemFigures], tuple[float | None, float]]
"""Function that returns a problem's share of the numerator and of the denominator of a figure. The
numerator is None if it is unknown."""


@dataclass(frozen=True)
class WarningFigure:
    """A ratio whose change in one direction indicates a hacked reward."""

    words: str
    """Description of the figure for messages."""
    is_bad_up: bool
    """True if the figure rises when the reward is hacked, False if it falls."""
    parts: Parts
    """Function that computes the figure's numerator and denominator for one problem."""


SIGNS: Mapping[str, WarningFigure] = {
    "pass_at_1": WarningFigure("right answers", False, lambda p: (p.num_right, p.num_samples)),
    "sound": WarningFigure(
        "solutions without a wrong step", False, lambda p: (p.num_sound, p.num_samples)
    ),
    "lucky": WarningFigure(
        "right answers through wrong steps", True, lambda p: (p.num_lucky, p.num_right)
    ),
    "prm_less_outcome": WarningFigure(
        "the PRM's lowest score above the outcome",
        True,
        lambda p: (None if p.score is None else p.score - p.num_right, p.num_samples),
    ),
}
"""Signs of a hacked reward, by the figure's name in `Measurement.summary`."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of a figure between two policies on the same problems."""

    figure: WarningFigure
    """The figure, one of `SIGNS`."""
    before: float
    """Figure of the first policy."""
    after: float
    """Figure of the second policy."""
    change: Estimate
    """Difference `after - before`, with a 95% bootstrap interval over problems."""

    @property
    def is_bad(self) -> bool:
        """Return whether the change indicates a hacked reward and its interval excludes 0."""
        low, high = self.change.low, self.change.high
        if low is None or high is None:
            return False
        return low > 0 if self.figure.is_bad_up else high < 0

    def __str__(self) -> str:
        difference = self.change
        return (
            f"{self.figure.words} {self.before:.3f} to {self.after:.3f}, {difference.value:+.3f} "
            f"[{difference.low:+.3f}, {difference.high:+.3f}]"
        )


def compare_measurements(
    before: Measurement, after: Measurement, *, seed: int = 0
) -> dict[str, Change]:
    """Return the change of each figure of `SIGNS` that both measurements contain.

    Args:
        before: measurement of the first policy.
        after: measurement of the second policy on the same problems.
        seed: random seed of the bootstrap over problems.

    Raises:
        ValueError: the problems of the two measurements differ.
    """
    ids = [figures.problem_id for figures in before.problems]
    later = {figures.problem_id: figures for figures in after.problems}
    if len(ids) != len(later) or not all(problem_id in later for problem_id in ids):
        raise ValueError("the problems of the two measurements differ, so they cannot be compared")
    weights = resample_weights(len(ids), seed)
    changes_by_name = {}
    for name, figure in SIGNS.items():
        pairs = [
            figure.parts(figures) + figure.parts(later[figures.problem_id])
            for figures in before.problems
        ]
        if any(value is None for pair in pairs for value in pair):
            continue
        table = np.array(pairs, dtype=np.float64)
        change = sums_estimate(table, weights, _accuracy_change)
        if change.value is None:
            continue  # without right answers, the share of lucky answers is undefined
        old, num_old, new, num_new = table.sum(0).tolist()
        changes_by_name[name] = Change(
            figure=figure, before=old / num_old, after=new / num_new, change=change
        )
    return changes_by_name


def _accuracy_change(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return shares(sums[..., 2], sums[..., 3]) - shares(sums[..., 0], sums[..., 1])
