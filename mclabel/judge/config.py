"""Configuration of the jobs of judges, and of scoring jobs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, Chosen, Seed, Settings, at_most
from mclabel.judge.base import JudgeSettings
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
    """Solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str | None, OPERATIONAL] = None
    """A .jsonl file, or a folder or object store URL for a run of opinions with the scores. null
    prints JSON lines."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(256, ge=1)
    """Solutions in a block, the unit of work, which is written as one shard. A killed block is
    scored again."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first row or problem that cannot be used. If false, it is left out, and listed or
    counted."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


def _symbolic() -> JudgeSettings:
    from mclabel.judge.symbolic.judge import SymbolicJudge

    return SymbolicJudge.Settings()


class JudgeConfig(RunsHere):
    """A job that asks a judge for opinions on the steps of solutions."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    judge: Annotated[JudgeSettings, Chosen("judges", default="symbolic")] = Field(
        default_factory=_symbolic
    )
    """Judge, which gives an opinion on the first error."""
    answers: Annotated[str | None, OPERATIONAL] = None
    """Earlier run of the same judge, whose model's answers are used again; only missing ones are
    sampled."""
    seed: Seed = 0
    """Random seed for sampling. Completions repeat only if the engine samples reproducibly."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(64, ge=1)
    """Solutions in a block, the unit of work, which is written as one shard."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of the journals. A killed engine loses at most this much work."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first row or problem that cannot be used. If false, it is left out, and listed or
    counted."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
