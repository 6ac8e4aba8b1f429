"""Settings of a job: where its engines run, and what it may cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import (
    MAX_AMOUNT,
    MAX_COUNT,
    MAX_SECONDS,
    MAX_TOTAL,
    OPERATIONAL,
    Harmless,
    Settings,
    rule,
)

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
    min_engines: int = Field(1, ge=1, le=MAX_COUNT)
    """Number of engines that must be running before work begins. Work continues if some are lost
    later."""
    max_engines: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of engines that run at the same time; null starts as many as the cluster has
    room for. A number is requested from the cluster at once, so that an autoscaling cluster grows
    to it."""
    wait_s: float = Field(300, ge=0, le=MAX_SECONDS)
    """Seconds to wait for the cluster to have room for `min_engines`. After that the job fails."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, le=MAX_SECONDS)
    """Seconds without a new token after which an engine is reported as silent; for an engine with
    longer pauses, five times its longest pause so far. After twice that time it is replaced, or
    the job ends if `address` is none."""
    num_cpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """Number of CPUs reserved for each engine or worker; null takes the default of the engine."""
    num_gpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """Number of GPUs reserved for each engine or worker; null takes the default of the engine."""

    @rule
    def _ordered(self) -> str | None:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            return (
                f"ray.max_engines={self.max_engines}: must be >= "
                f"ray.min_engines={self.min_engines}. Raise max_engines, or lower min_engines"
            )
        return None


class BudgetConfig(Settings):
    """What a job may cost, and what things cost. Limits hold for all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1, le=MAX_TOTAL)
    """Approximate limit on sampled tokens over all runs of the job. Rollouts under way still finish
    and may exceed it. null sets no limit."""
    max_hours: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Limit on the hours that the job runs, over all its runs and including the loading of engines.
    null sets no limit."""
    price_per_gpu_hour: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of one GPU for one hour, in any currency, used only by the cost forecast. null leaves
    GPU prices out of it."""
    price_per_million_tokens: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of one million sampled tokens, in any currency, used only by the cost forecast. null
    leaves token prices out of it."""
