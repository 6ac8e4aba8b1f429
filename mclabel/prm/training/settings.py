"""How a step model is fitted to examples, and to which services its figures go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mclabel.core.errors import ConfigError
from mclabel.core.extras import is_installed
from mclabel.core.settings import (
    MAX_AMOUNT,
    MAX_COUNT,
    MAX_TOKENS,
    OPERATIONAL,
    Named,
    Seed,
    Settings,
)
from mclabel.engines.devices import has_bfloat16

Tracker = Literal["tensorboard", "trackio", "wandb", "mlflow"]
"""Named as the package that has to be installed."""


def _listed(given: Any) -> Any:
    """One name, or `none`, as a list: Hugging Face takes them, too."""
    return ([] if given == "none" else [given]) if isinstance(given, str) else given


ReportTo = Annotated[list[Tracker], OPERATIONAL, BeforeValidator(_listed)]
"""Type of the setting."""


def check_trackers(report_to: Iterable[str]) -> None:
    """See that the packages of trackers are installed, before anything is trained.

    Raises:
        ConfigError: names those that are not.
    """
    if missing := [name for name in report_to if not is_installed(name)]:
        raise ConfigError(
            f"report_to={','.join(report_to)}: each must be an installed package, and this "
            f"environment lacks {', '.join(missing)}. Install it with pip install "
            f"{' '.join(missing)}, or leave it out: log.jsonl has all figures"
        )


LOSSES: Mapping[str, str] = {
    "cross_entropy": "mclabel.prm.training.losses:cross_entropy",
    "mse": "mclabel.prm.training.losses:squared_error",
}
"""Name in a configuration, and where the function stands: log-odds and targets of steps, to a loss
for each."""

_WEIGHTS_LR, _ADAPTERS_LR = 1e-5, 1e-4
"""Adapters begin at no change and are few: they take ten times the rate of full training."""


class TrainerSettings(Settings):
    """Losses, rates, and the lengths of training."""

    loss: Annotated[str, Named("losses")] = "cross_entropy"
    """`cross_entropy`, `mse` (of the probability), or `module:function`."""
    balance: bool = False
    """Whether sound and wrong steps have the same total weight in the loss."""
    epochs: float = Field(3.0, gt=0, le=MAX_COUNT)
    """Number of passes over the training solutions."""
    max_steps: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps; null uses `epochs`."""
    batch_size: int = Field(16, ge=1, le=MAX_COUNT)
    """Solutions per optimizer step, over all workers."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1, le=MAX_TOKENS)
    """Most tokens, padding included, that a worker processes at once, but at least one solution."""
    backbone_lr: float | None = Field(None, ge=0, le=MAX_AMOUNT)
    """Learning rate of the base's weights or adapters; 0 freezes the base. null: 1e-4 for adapters,
    1e-5 for weights."""
    head_lr: float = Field(1e-3, gt=0, le=MAX_AMOUNT)
    """Learning rate of the head."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Fraction of the optimizer steps in which learning rates rise; they then fall linearly to
    0."""
    bf16: bool | None = None
    """Whether to compute in bfloat16 mixed precision; the weights keep their `dtype`. null: on a
    GPU that has it."""
    seed: Seed = 0
    """Random seed of the head's weights and of the order of solutions."""
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two checkpoints."""
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two validations; null validates after every epoch."""
    patience: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Validations in a row without a lower loss after which training stops with the best
    weights."""
    report_to: ReportTo = Field([])
    """Trackers of losses and metrics, besides `log.jsonl`; each needs its own package."""

    def body_rate(self, *, has_adapters: bool) -> float:
        """Learning rate of the base's weights, or of its adapters where it has them."""
        if self.backbone_lr is not None:
            return self.backbone_lr
        return _ADAPTERS_LR if has_adapters else _WEIGHTS_LR

    def mixes_precision(self, device: str) -> bool:
        """Whether a device computes in mixed precision; a torch device, such as cuda:0."""
        return has_bfloat16(device) if self.bf16 is None else self.bf16
