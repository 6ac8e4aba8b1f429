"""The way that a step model is fitted to examples, and to which services its figures go."""

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
    """True if sound and wrong steps have equal total weight."""
    epochs: float = Field(3.0, gt=0, le=MAX_COUNT)
    """Number of passes over the training solutions."""
    max_steps: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps; null uses `epochs`."""
    batch_size: int = Field(16, ge=1, le=MAX_COUNT)
    """Solutions per optimizer step, over all workers."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens, with padding, that a worker processes at once."""
    backbone_lr: float | None = Field(None, ge=0, le=MAX_AMOUNT)
    """Learning rate of the base; 0 freezes it. null: 1e-4 for adapters, 1e-5 for weights."""
    head_lr: float = Field(1e-3, gt=0, le=MAX_AMOUNT)
    """Learning rate of the head."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Fraction of warm-up steps; learning rates then fall linearly to 0."""
    bf16: bool | None = None
    """Compute in bfloat16 mixed precision. null: on a GPU that supports it."""
    seed: Seed = 0
    """Random seed."""
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two checkpoints."""
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two validations; null: every epoch."""
    patience: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Validations without a lower loss before training stops with the best weights."""
    report_to: ReportTo = Field([])
    """Trackers of losses and metrics, which need their own packages."""

    def body_rate(self, *, has_adapters: bool) -> float:
        """Learning rate of the base's weights, or of its adapters where it has them."""
        if self.backbone_lr is not None:
            return self.backbone_lr
        return _ADAPTERS_LR if has_adapters else _WEIGHTS_LR

    def mixes_precision(self, device: str) -> bool:
        """Return whether a device computes in mixed precision; a torch device, such as cuda:0."""
        return has_bfloat16(device) if self.bf16 is None else self.bf16
