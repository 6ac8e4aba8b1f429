"""Settings that all jobs share: the machines of the engines, and the budget."""

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
    """Address of the Ray cluster. `local` starts Ray on this machine. `auto` or HOST:PORT (command
    line only) joins a running cluster. `none` runs one engine in this process without Ray."""
    min_engines: int = Field(1, ge=1, le=MAX_COUNT)
    """Number of engines that must be loaded before work starts."""
    max_engines: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of engines; null starts as many as fit on the cluster."""
    wait_s: float = Field(300, ge=0, le=MAX_SECONDS)
    """Seconds to wait for `min_engines` before the job fails."""
    stall_s: Annotated[float, OPERATIONAL] = Field(120, gt=0, le=MAX_SECONDS)
    """Minimum seconds without a token before an engine is reported as silent; slow engines are
    given longer. An engine that stays silent for twice the time is replaced."""
    num_cpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """Number of CPUs reserved for each engine; null uses the engine's default."""
    num_gpus: float | None = Field(None, ge=0, le=MAX_COUNT)
    """Number of GPUs reserved for each engine; null uses the engine's default."""

    @rule
    def _check_engine_range(self) -> str | None:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            return (
                f"ray.max_engines={self.max_engines}: must be >= "
                f"ray.min_engines={self.min_engines}. Raise max_engines, or lower min_engines"
            )
        return None


class BudgetConfig(Settings):
    """Limits on the spending of a job, and prices. Limits apply to all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1, le=MAX_TOTAL)
    """Maximum number of sampled tokens over all runs of the job; null for no limit."""
    max_hours: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Maximum running time in hours over all runs of the job; null for no limit."""
    price_per_gpu_hour: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of a GPU for one hour, for the forecast."""
    price_per_million_tokens: float | None = Field(None, gt=0, le=MAX_AMOUNT)
    """Price of a million sampled tokens, for the forecast."""
