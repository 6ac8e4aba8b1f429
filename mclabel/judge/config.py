"""Configuration of the jobs of judges."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, Chosen, Seed, at_most
from mclabel.judge.base import JudgeSettings
from mclabel.judge.score_config import MAX_BLOCK, RunsHere
from mclabel.run.settings import BudgetConfig


def _symbolic() -> JudgeSettings:
    from mclabel.judge.symbolic.judge import SymbolicJudge

    return SymbolicJudge.Settings()


class JudgeConfig(RunsHere):
    """A job that asks a judge for opinions on the steps of solutions."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions to judge: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted job."""
    judge: Annotated[JudgeSettings, Chosen("judges", default="symbolic")] = Field(
        default_factory=_symbolic
    )
    """Name of the judge. Its settings are the other keys of `judge`."""
    answers: Annotated[str | None, OPERATIONAL] = None
    """Earlier run of the same judge, whose language model's answers are reused: its answers to the
    same prompts are parsed again, and only missing ones are sampled. null samples all answers."""
    seed: Seed = 0
    """Random seed for sampling."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(64, ge=1)
    """Number of solutions in a block. A block is the unit of work and is written as one shard."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of the journals of unfinished blocks. A killed engine loses at
    most the answers of this period."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first input row that cannot be judged. If false, it is left out and
    listed in the output."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
