"""Samples a problem's solutions, and keeps all of them or equally many right and wrong ones.

Solutions that are kept because of their outcome are a biased sample of the policy. They are marked,
and estimators do not use their outcomes as evidence. The first batch of solutions, whose size is
fixed before sampling, remains an unbiased sample, from which the policy's success rate on the
problem is estimated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, Outcome, Solution
from mclabel.core.settings import CONTENT, MAX_COUNT, OPERATIONAL, Settings, at_most, rule

MAX_SAMPLES = 16_384
"""Maximum number of solutions sampled per problem without the setting `balance`."""
MAX_RUNNING = 1024
"""Maximum number of a problem's solutions that are sampled at a time. More requests would only use
memory."""
_TEXTS_IN_MEMORY = "the text of every one is held in memory until its block is committed"


class SolutionSettings(Settings):
    """Settings that choose the solutions to label."""

    per_problem: Annotated[int, at_most(MAX_SAMPLES, _TEXTS_IN_MEMORY)] = Field(4, ge=1)
    """Number of solutions sampled for each problem, unless `path` or `run` is set."""
    balance: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Keep up to this many right and equally many wrong solutions of each problem."""
    max_samples: Annotated[int | None, at_most(4 * MAX_SAMPLES, _TEXTS_IN_MEMORY)] = Field(
        None, ge=1
    )
    """Maximum number of samples per problem with `balance`; null means four times `per_problem`."""
    run: Annotated[str | None, OPERATIONAL] = Field(None, min_length=1)
    """Folder or URL of a run of the same policy whose problems, solutions and rollouts are reused.
    """
    path: Annotated[str | None, OPERATIONAL] = None
    """File of solutions to label, with columns `problem_id` or `problem`, and `solution` or
    `steps`."""

    select: Annotated[str | None, CONTENT] = Field(None, min_length=1)
    """Manifest written by `mclabel select`. Only the selected solutions of `run` or `path` are
    labelled."""

    @rule
    def _check_selection_has_pool(self) -> str | None:
        if self.select is not None and self.run is None and self.path is None:
            return (
                "select chooses solutions from a pool, but no pool is given. Set run (a labelling "
                "run) or path (a file) to the pool"
            )
        return None

    @rule
    def _check_given_solutions_not_chosen(self) -> str | None:
        given = [name for name in ("path", "run") if getattr(self, name) is not None]
        if self.balance is not None and given:
            return (
                f"balance applies to sampled solutions, but {given[0]} gives existing ones. Set "
                "only one of the two"
            )
        if len(given) > 1:
            return "path and run both give solutions. Set only one of the two"
        return None

    @rule
    def _check_sample_limit_needs_balance(self) -> str | None:
        if self.max_samples is not None and self.balance is None:
            return (
                "max_samples limits the sampling for balance, but balance is not set. Set "
                "balance, or remove max_samples"
            )
        return None

    @rule
    def _check_sample_limit_size(self) -> str | None:
        if self.max_samples is not None and self.max_samples < self.per_problem:
            return (
                f"max_samples={self.max_samples}: must be at least per_problem={self.per_problem}. "
                "Raise max_samples, or lower per_problem"
            )
        return None

    @property
    def max_sampled_solutions(self) -> int:
        """Maximum number of solutions that are sampled per problem."""
        if self.balance is None:
            return self.per_problem
        return self.max_samples or 4 * self.per_problem


@dataclass(frozen=True, kw_only=True)
class SampledSolutions:
    """Solutions sampled for one problem."""

    kept: tuple[Solution, ...]
    """Solutions to label, by sample index; empty if the problem is dropped."""
    num_sampled: int
    """Number of sampled solutions, including discarded ones."""
    num_right: int
    """Number of sampled solutions that are right."""
    first_batch_counts: Counts
    """Outcome counts of the first batch of solutions, an unbiased sample, since its size was fixed
    before any outcome was known."""
    num_tokens: int = 0
    """Number of tokens of all sampled solutions."""


async def sample_solutions(
    sample: Callable[[int], Awaitable[Solution]],
    *,
    batch_size: int,
    balance: int | None = None,
    max_samples: int | None = None,
) -> SampledSolutions:
    """Sample a problem's solutions and choose among them.

    Args:
        sample: function that samples the solution with a given index, from 0.
        batch_size: number of solutions per batch; there is only one batch if `balance` is None.
        balance: number of right solutions, and number of wrong solutions, to keep. If one kind
            is rarer, only as many of the other kind are kept. Truncated and ungraded solutions
            are not kept. None keeps all solutions.
        max_samples: maximum number of solutions if `balance` is set. Batches are sampled until
            there are enough right and wrong solutions, or this number is reached. None means
            `batch_size`.
    """
    solutions = await _sample_concurrently(sample, range(batch_size))
    first = Counts()
    for solution in solutions:
        first = first.plus(solution.outcome, len(solution.ids))
    kept = solutions
    if balance is not None:
        while _count_balanceable_pairs(solutions) < balance and len(solutions) < (
            max_samples or batch_size
        ):
            done = len(solutions)
            more = range(done, min(done + batch_size, max_samples or batch_size))
            solutions += await _sample_concurrently(sample, more)
        each = min(balance, _count_balanceable_pairs(solutions))
        right = _select_with_outcome(solutions, Outcome.RIGHT)[:each]
        wrong = _select_with_outcome(solutions, Outcome.WRONG)[:each]
        kept = sorted([*right, *wrong], key=lambda solution: solution.sample_index)
    return SampledSolutions(
        kept=tuple(kept),
        num_sampled=len(solutions),
        num_right=sum(one.outcome is Outcome.RIGHT for one in solutions),
        first_batch_counts=first,
        num_tokens=sum(len(one.ids) for one in solutions),
    )


async def _sample_concurrently(
    sample: Callable[[int], Awaitable[Solution]], indices: range
) -> list[Solution]:
    """Sample solutions with bounded concurrency, and return them in the order of their indices."""
    by_index: dict[int, Solution] = {}
    remaining = iter(indices)

    async def sample_remaining() -> None:
        for index in remaining:
            by_index[index] = await sample(index)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(MAX_RUNNING, len(indices))):
            group.create_task(sample_remaining())
    return [by_index[index] for index in sorted(by_index)]


def _select_with_outcome(solutions: Sequence[Solution], outcome: Outcome) -> list[Solution]:
    return [solution for solution in solutions if solution.outcome is outcome and solution.steps]


def _count_balanceable_pairs(solutions: Sequence[Solution]) -> int:
    return min(
        len(_select_with_outcome(solutions, Outcome.RIGHT)),
        len(_select_with_outcome(solutions, Outcome.WRONG)),
    )
