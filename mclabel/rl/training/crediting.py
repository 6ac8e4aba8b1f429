"""Advantages of the tokens in the groups of an optimizer step.

The configured credit computes them from outcomes and, if needed, from step values, PRM scores or
first errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from mclabel.core.errors import DataError
from mclabel.core.records import Problem, Solution
from mclabel.rl.client import find_zero_reward_reason, spread_credits
from mclabel.rl.config import RLSettings
from mclabel.rl.credits import ERROR_BELOW, CheckedCredit, Segment, StepEvidence
from mclabel.rl.groups import Group, reward_solution
from mclabel.rl.values import GroupValues, SolutionValues

if TYPE_CHECKING:
    from mclabel.prm.scoring.score import PRM


class ValueEstimator(Protocol):
    """An estimator of the values of groups; see `LiveEngine.values`."""

    def values(
        self, groups: Sequence[Group], *, seed: int, outcomes: bool = False
    ) -> list[GroupValues]:
        """Estimate the values of each group, in order."""
        ...


@dataclass(frozen=True, kw_only=True)
class AssignedCredits:
    """Advantages of all solutions in the groups of an optimizer step."""

    advantages: list[list[list[float] | None]]
    """Advantages by group, solution and token. The last one repeats the advantage of the last step
    for the end token. None for a solution with an unknown outcome, which is left out of the
    loss."""
    num_value_tokens: int = 0
    """Number of tokens sampled to estimate values."""
    mean_score: float | None = None
    """Mean over the solutions of the PRM's lowest step score; None without a PRM."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of solutions that are refused, by reason. An empty or repetitive solution gets the
    reward 0 even if its answer is right; one that the PRM cannot read is left out of the loss."""


class CreditAssigner:
    """Assigns advantages to the tokens of groups, with the credit that the settings name."""

    def __init__(self, settings: RLSettings, engine: ValueEstimator, prm: PRM | None) -> None:
        """Prepare to assign credit.

        Args:
            settings: settings of the training run.
            engine: estimator of step values under the current weights.
            prm: PRM of the settings; None if the settings name no PRM.

        Raises:
            ConfigError: the credit of the settings does not exist.
        """
        self._settings, self._engine, self._prm = settings, engine, prm
        self._credit = CheckedCredit(settings.credit)

    def assign(self, groups: Sequence[Group], *, seed: int) -> AssignedCredits:
        """Assign credit to the groups of an optimizer step.

        Args:
            groups: groups that were sampled with the current weights.
            seed: seed of the rollouts that estimate values.

        Raises:
            EngineError: the engine died.
            ComponentError: a user's credit broke the rules of its protocol.
        """
        needs, refused, num_tokens = self._credit.needs, Counter[str](), 0
        evidence = [
            [self._outcome_evidence(solution, refused) for solution in group.solutions]
            for group in groups
        ]
        if self._prm is not None:
            evidence = [
                self._with_scores(group.problem, group.solutions, group_evidence, refused)
                for group, group_evidence in zip(groups, evidence, strict=True)
            ]
        from_values = "first_error" in needs and self._prm is None
        if "values" in needs or from_values:
            values_of_groups = self._engine.values(groups, seed=seed, outcomes=from_values)
            num_tokens = sum(values.num_tokens for values in values_of_groups)
            evidence = [
                [
                    _with_values(*pair, from_values)
                    for pair in zip(group_evidence, values.solutions, strict=True)
                ]
                for group_evidence, values in zip(evidence, values_of_groups, strict=True)
            ]
        advantages = [
            [
                None if segments is None else spread_advantages_over_tokens(solution, segments)
                for solution, segments in zip(
                    group.solutions, self._credit.assign_known(group_evidence), strict=True
                )
            ]
            for group, group_evidence in zip(groups, evidence, strict=True)
        ]
        scores = [
            min(e.scores)
            for group_evidence in evidence
            for e in group_evidence
            if e is not None and e.scores
        ]
        return AssignedCredits(
            advantages=advantages,
            num_value_tokens=num_tokens,
            mean_score=sum(scores) / len(scores) if scores else None,
            refused=refused,
        )

    def _outcome_evidence(self, solution: Solution, refused: Counter[str]) -> StepEvidence | None:
        """Return the evidence from a solution's outcome; None if the outcome is unknown."""
        reason = find_zero_reward_reason([step.text for step in solution.steps])
        if reason is not None:
            refused[reason] += 1
        reward = 0.0 if reason is not None else reward_solution(solution, self._settings.truncated)
        if reward is None:
            return None
        return StepEvidence(num_steps=len(solution.steps), reward=reward)

    def lowest_scores(self, groups: Sequence[Group]) -> list[list[float]] | None:
        """Return the PRM's lowest step score for each group and solution; None without a PRM.

        A solution that the PRM cannot read has 0.
        """
        if self._prm is None:
            return None
        lowest_by_group = []
        for group in groups:
            evidence = [
                StepEvidence(num_steps=len(solution.steps), reward=0.0)
                for solution in group.solutions
            ]
            scored = self._with_scores(group.problem, group.solutions, evidence, Counter())
            lowest_by_group.append(
                [0.0 if item is None else min(item.scores or (0.0,)) for item in scored]
            )
        return lowest_by_group

    def _with_scores(
        self,
        problem: Problem,
        solutions: Sequence[Solution],
        evidence: Sequence[StepEvidence | None],
        refused: Counter[str],
    ) -> list[StepEvidence | None]:
        """Add the PRM's step scores to the evidence of solutions.

        The evidence of a solution that the PRM cannot read becomes None. A solution without steps
        gets an empty tuple of scores.
        """
        assert self._prm is not None
        encoded = {}
        for number, solution in enumerate(solutions):
            try:
                if solution.steps:
                    steps = [step.text for step in solution.steps]
                    encoded[number] = self._prm.encode(problem.text, steps, solution.id)
            except DataError:
                refused["not_scored"] += 1
        scores = dict(zip(encoded, self._prm.score_encoded(list(encoded.values())), strict=True))
        scored: list[StepEvidence | None] = []
        for number, item_evidence in enumerate(evidence):
            if item_evidence is None or (number not in scores and item_evidence.num_steps):
                scored.append(None)
                continue
            step_scores = scores.get(number, ())
            first = next((i for i, s in enumerate(step_scores) if s < ERROR_BELOW), None)
            scored.append(replace(item_evidence, scores=tuple(step_scores), first_error=first))
        return scored


def spread_advantages_over_tokens(solution: Solution, segments: Sequence[Segment]) -> list[float]:
    """Return the advantage of each token of a solution, and one more for its end token.

    The end token has the advantage of the last step.

    Args:
        solution: solution whose ids do not include the end token.
        segments: segments that cover all steps of the solution; empty if it has no steps. All
            advantages are then 0.
    """
    ends = [step.end for step in solution.steps]
    tokens = spread_credits(
        [segment.credit for segment in segments],
        [ends[segment.end - 1] for segment in segments],
        len(solution.ids),
    )
    return [*tokens, segments[-1].credit if segments else 0.0]


def _with_values(
    evidence: StepEvidence | None, solution_values: SolutionValues, from_values: bool
) -> StepEvidence | None:
    if evidence is None:
        return None
    values = (*solution_values.values[:-1], evidence.reward)
    return replace(
        evidence,
        values=values,
        first_error=solution_values.first_error if from_values else evidence.first_error,
    )
