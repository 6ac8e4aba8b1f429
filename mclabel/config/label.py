"""Configuration of labelling jobs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.settings import LabelSettings
from mclabel.settings import OPERATIONAL, Harmless, Settings, at_most

MAX_BLOCK = 10_000
_OWN_CLUSTER = Harmless(
    lambda address: address in ("local", "auto", "none"),
    "joins a cluster, which may run any code here",
)


class RayConfig(Settings):
    """Where the engines run."""

    address: Annotated[str, _OWN_CLUSTER] = "local"
    """`local` starts Ray on this machine, `auto` or HOST:PORT joins a running cluster, and `none`
    runs in this process without Ray. For security HOST:PORT must be passed on the command line; a
    file alone cannot set it."""
    min_engines: int = Field(1, ge=1)
    """Number of engines that must be running before work begins. Work continues if some are lost
    later."""
    max_engines: int | None = Field(None, ge=1)
    """Maximum number of engines that run at the same time; null starts as many as the cluster has
    room for. A number is requested from the cluster at once, so that an autoscaling cluster grows
    to it."""
    wait_s: float = Field(300, ge=0, allow_inf_nan=False)
    """Seconds to wait for the cluster to have room for `min_engines`. After that the job fails."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, allow_inf_nan=False)
    """Seconds without a new token after which an engine is reported as silent; for an engine with
    longer pauses, five times its longest pause so far. It is replaced after twice that time."""
    num_cpus: float | None = Field(None, ge=0)
    """Number of CPUs reserved for each engine or worker; null takes the default of the engine."""
    num_gpus: float | None = Field(None, ge=0)
    """Number of GPUs reserved for each engine or worker; null takes the default of the engine."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            raise ValueError(
                f"ray.max_engines={self.max_engines}: must be >= "
                f"ray.min_engines={self.min_engines}. Raise max_engines, or lower min_engines"
            )
        return self


class BudgetConfig(Settings):
    """What a job may cost, and what things cost. Limits hold for all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1)
    """Approximate limit on sampled tokens over all runs of the job. Rollouts under way still finish
    and may exceed it. null sets no limit."""
    max_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Limit on the hours that the job runs, over all its runs and including the loading of engines.
    null sets no limit."""
    price_per_gpu_hour: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Price of one GPU for one hour, in any currency, used only by the cost forecast. null leaves
    GPU prices out of it."""
    price_per_million_tokens: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Price of one million sampled tokens, in any currency, used only by the cost forecast. null
    leaves token prices out of it."""


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
