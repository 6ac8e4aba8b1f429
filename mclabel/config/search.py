"""Configuration of searches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.config.label import MAX_BLOCK, arith_problems
from mclabel.config.score import RunsHere
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.search.settings import SearchSettings, SteeredSettings
from mclabel.settings import OPERATIONAL, at_most, rule
from mclabel.work.settings import BudgetConfig


class SharedSearchConfig(SteeredSettings, RunsHere):
    """What a search and a comparison of searches have in common."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """Name of the reader of the problems; by default it follows from `source`."""
    policy: PolicySettings = PolicySettings()
    """What writes the solutions."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Number of problems in a block. A block is the unit of work that an engine takes, and is
    written as one shard."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, allow_inf_nan=False)
    """Seconds between two writes of the journals of unfinished blocks. A killed engine loses at
    most the work of this period."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first input row or problem that cannot be searched. If false, it is left
    out and listed in the output."""

    @rule
    def _one_solution_fits(self) -> str | None:
        if self.tokens is not None and self.tokens < self.policy.max_tokens:
            return (
                f"tokens={self.tokens}: is less than policy.max_tokens={self.policy.max_tokens}, "
                "so that not even one solution is sure to fit. Raise tokens, or lower "
                "policy.max_tokens"
            )
        return None

    @rule
    def _a_step_is_no_longer_than_a_solution(self) -> str | None:
        if self.step_tokens is not None and self.step_tokens > self.policy.max_tokens:
            return (
                f"step_tokens={self.step_tokens}: is more than "
                f"policy.max_tokens={self.policy.max_tokens}, which a whole solution may have. "
                "Lower it"
            )
        return None


class SearchConfig(SearchSettings, SharedSearchConfig):
    """A job that searches for solutions to problems, steered by a scorer of steps."""

    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
