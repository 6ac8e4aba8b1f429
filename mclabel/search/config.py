"""Configuration of searches."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, at_most
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.judge.score_config import RunsHere
from mclabel.labeling.config import MAX_BLOCK, arith_problems
from mclabel.run.settings import BudgetConfig
from mclabel.search.settings import PolicySearchSettings, PolicySteeredSettings


class SharedSearchConfig(PolicySteeredSettings, RunsHere):
    """What a search and a comparison of searches have in common."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """Name of the reader of the problems; by default it follows from `source`."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Number of problems in a block. A block is the unit of work that an engine takes, and is
    written as one shard."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of the journals of unfinished blocks. A killed engine loses at
    most the work of this period."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first input row or problem that cannot be searched. If false, it is left
    out and listed in the output."""


class SearchConfig(PolicySearchSettings, SharedSearchConfig):
    """A job that searches for solutions to problems, steered by a scorer of steps."""

    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


class ServeSearchConfig(PolicySearchSettings):
    """A server that answers a problem with the solution that a search chooses.

    Keys that only `mclabel search` uses, such as `problems` and `out`, are ignored, so that the
    file of a search job also configures the server.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_keys_of_a_job(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        of_a_job = SearchConfig.model_fields.keys() - cls.model_fields.keys()
        return {key: value for key, value in content.items() if key not in of_a_job}
