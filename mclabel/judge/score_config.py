"""Configuration of scoring jobs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from mclabel.core.settings import OPERATIONAL, Settings, at_most
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.run.settings import BudgetConfig, RayConfig

MAX_BLOCK = 100_000


class RunsHere(Settings):
    """A job that runs in this process unless the user names a cluster."""

    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig(address="none")

    @model_validator(mode="before")
    @classmethod
    def _here_by_default(cls, content: Any) -> Any:
        ray = content.get("ray") if isinstance(content, dict) else None
        if isinstance(ray, dict):
            return {**content, "ray": {"address": "none", **ray}}
        return content


class ScoreConfig(ScorerSettings, RunsHere):
    """A job that scores solutions with a PRM."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions to score: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str | None, OPERATIONAL] = None
    """Output: a file that ends in .jsonl, or a folder or object store URL for a run of opinions
    that have the scores. null prints the scores as JSON lines."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(256, ge=1)
    """Number of solutions in a block. A block is the unit of work and is written as one shard; if
    its engine is killed, the block is scored again from its beginning."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first input row that cannot be scored. If false, it is left out and
    listed in the output."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
