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
    """`local` starts Ray on this machine, `auto` or HOST:PORT joins a cluster, `none` runs in
    this process without Ray. A file alone must not name HOST:PORT."""
    min_engines: int = Field(1, ge=1)
    """Number of engines that must be running before work begins. More are started as the cluster
    has room, and work goes on if some are lost."""
    max_engines: int | None = Field(None, ge=1)
    """Most engines at a time; null takes as many as the cluster has room for. A number is requested
    at once, so that an autoscaling cluster grows to it."""
    wait_s: float = Field(300, ge=0, allow_inf_nan=False)
    """Seconds to wait until the cluster has room for `min_engines`."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, allow_inf_nan=False)
    """An engine is reported as silent when it has given no token for this many seconds and for five
    times its own longest pause so far. It is replaced after twice that time."""
    num_cpus: float | None = Field(None, ge=0)
    """Number of CPUs reserved for each engine; null takes the engine's default."""
    num_gpus: float | None = Field(None, ge=0)
    """Number of GPUs reserved for each engine; null takes the engine's default."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            raise ValueError(
                f"ray.max_engines={self.max_engines}: must be >= ray.min_engines={self.min_engines}"
            )
        return self


class BudgetConfig(Settings):
    """What a job may cost, and what things cost. Limits hold for all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1)
    """Approximate limit on sampled tokens. Rollouts under way still finish and may exceed it."""
    max_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Limit on the hours that the job runs, including the loading of engines."""
    price_per_gpu_hour: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Price of a GPU for an hour. Only the forecast uses it."""
    price_per_million_tokens: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Price of a million sampled tokens. Only the forecast uses it."""


def arith_problems() -> ReaderSettings:
    """Settings of problems where a configuration has none."""
    from mclabel.data.readers.generated import ArithReader

    return ArithReader.Settings()


class LabelConfig(LabelSettings):
    """A labelling job."""

    out: Annotated[str, OPERATIONAL]
    """Folder or object store URL for the shards."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """The source of the problems. The run's plan records which problems these are, so a file may
    move or grow."""
    policy: PolicySettings = PolicySettings()
    """What writes the solutions and the rollouts."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Number of problems in a block. A block is the unit of work, and fills one shard."""
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Keep the texts of rollouts, so that a better checker can grade them again."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, allow_inf_nan=False)
    """Seconds between two writes of the journals. A killed engine loses at most so many seconds of
    work."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
