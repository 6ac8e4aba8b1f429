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
    """Engine actors that must be there before work begins. More are added as there is room, and
    work goes on if some are lost."""
    max_engines: int | None = Field(None, ge=1)
    """None is as many as the cluster has room for at any time. A number is asked for at once,
    so that a cluster that scales itself grows to it."""
    wait_s: float = Field(300, ge=0, allow_inf_nan=False)
    """Seconds that a cluster is given to find room for `min_engines`."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, allow_inf_nan=False)
    """Seconds of silence under which no engine is suspected to have stopped. One that gives no
    token for longer, and for five times its own longest pause, is reported, and after twice that
    time replaced."""
    num_cpus: float | None = Field(None, ge=0)
    """Of an engine; None is what its policy needs."""
    num_gpus: float | None = Field(None, ge=0)
    """Of an engine; None is what its policy needs."""

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
    """Sampled tokens, about: what is under way when they are reached comes on top."""
    max_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Hours that the job may run, loading of engines included."""
    price_per_gpu_hour: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Money, for the forecast."""
    price_per_million_tokens: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Money for sampled tokens, for the forecast."""


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
    """Where problems come from. The run's plan holds which ones these are, so a file may move or
    grow."""
    policy: PolicySettings = PolicySettings()
    """What writes the solutions and the rollouts."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Problems in a new block, the unit of work and of a shard."""
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Write rollout texts, so that a better checker can grade them again."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, allow_inf_nan=False)
    """Seconds between two flushes of the journals: what a kill costs of an engine's work."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
