"""Configuration of labelling jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.settings import LabelSettings
from mclabel.settings import OPERATIONAL, at_most
from mclabel.work.settings import BudgetConfig, RayConfig

MAX_BLOCK = 10_000


def arith_problems() -> ReaderSettings:
    """Settings of problems where a configuration has none."""
    from mclabel.data.readers.generated import ArithReader

    return ArithReader.Settings()


class LabelConfig(LabelSettings):
    """A labelling job."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """Name of the reader of the problems; by default it follows from `source`. The run records
    which problems it labels, so the file may be moved or extended between runs."""
    policy: PolicySettings = PolicySettings()
    """What writes the solutions and the rollouts."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Number of problems in a block. A block is the unit of work that an engine takes, and is
    written as one shard."""
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Whether to store the texts of rollouts, which `mclabel regrade` needs to grade them again."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, allow_inf_nan=False)
    """Seconds between two writes of the journals of unfinished blocks. A killed engine loses at
    most the work of this period."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
