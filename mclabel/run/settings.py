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
    """Machines and resources on which the engines run."""

    address: Annotated[str, _OWN_CLUSTER] = "local"
    """`local` starts Ray here, `auto` or HOST:PORT (command line only) joins a cluster, `none`
    runs in this process."""
    min_engines: int = Field(1, ge=1, le=MAX_COUNT)
    """Engines that must be running before work begins."""
    max_engines: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of engines; null uses the whole cluster."""
    wait_s: float = Field(300, ge=0, le=MAX_SECONDS)
    """Seconds to wait for `min_engines` before the job fails."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, le=MAX_SECONDS)
    """Seconds without a token before an engine is reported as silent; after twice that time it
    is replaced."""
    num_cpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """CPUs reserved for each engine; null takes its default."""
    num_gpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """GPUs reserved for each engine; null takes its default."""

    @rule
    def _ordered(self) -> str | None:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            return (
                f"ray.max_engines={self.max_engines}: must be >= "
                f"ray.min_engines={self.min_engines}. Raise max_engines, or lower min_engines"
            )
        return None


class BudgetConfig(Settings):
    """Limits on the cost of a job, and prices. Limits apply to all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1, le=MAX_TOTAL)
    """Limit on sampled tokens over all runs of the job."""
    max_hours: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Limit on hours over all runs of the job."""
    price_per_gpu_hour: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of a GPU for one hour, for the forecast."""
    price_per_million_tokens: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of a million sampled tokens, for the forecast."""
