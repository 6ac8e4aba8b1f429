"""Settings of the trainer of step models, and of the services that track its figures."""

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
"""Name of a tracking service, which is also the name of the Python package that it needs."""


def _parse_tracker_names(given: Any) -> Any:
    """Convert a name to a list of one name, and `none` to an empty list, as Hugging Face does."""
    return ([] if given == "none" else [given]) if isinstance(given, str) else given


ReportTo = Annotated[list[Tracker], OPERATIONAL, BeforeValidator(_parse_tracker_names)]
"""Type of the setting `report_to`: a list of tracking services."""


def check_trackers(report_to: Iterable[str]) -> None:
    """Check that the packages of the trackers are installed, before training begins.

    Raises:
        ConfigError: a package is not installed; the message lists all missing packages.
    """
    if missing := [name for name in report_to if not is_installed(name)]:
        raise ConfigError(
            f"report_to={','.join(report_to)}: each must be an installed package, and this "
            f"environment lacks {', '.join(missing)}. Install it with pip install "
            f"{' '.join(missing)}, or remove it from report_to: log.jsonl has all figures"
        )


LOSSES: Mapping[str, str] = {
    "cross_entropy": "mclabel.prm.training.losses:cross_entropy",
    "mse": "mclabel.prm.training.losses:squared_error",
}
"""Built-in losses: the name in a configuration, and the `module:function` path. A loss function
takes the log-odds and the targets of steps and returns one loss per step."""

_WEIGHTS_LR, _ADAPTERS_LR = 1e-5, 1e-4
"""Default learning rates. Adapters start at zero and have few weights, so their rate is ten times
the rate of full training."""


class TrainerSettings(Settings):
    """Settings of the loss, the learning rates and the length of training."""

    loss: Annotated[str, Named("losses")] = "cross_entropy"
    """Loss of a step: `cross_entropy`, `mse` (squared error of the probability), or
    `module:function`."""
    balance: bool = False
    """True to rescale weights so that sound and wrong steps have equal total weight."""
    epochs: float = Field(3.0, gt=0, le=MAX_COUNT)
    """Number of passes over the training solutions."""
    max_steps: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps; null derives it from `epochs`."""
    batch_size: int = Field(16, ge=1, le=MAX_COUNT)
    """Solutions per optimizer step, over all workers."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens that a worker processes at once, including padding."""
    backbone_lr: float | None = Field(None, ge=0, le=MAX_AMOUNT)
    """Learning rate of the base; 0 freezes it. null takes 1e-4 for LoRA adapters and 1e-5 for the
    base's own weights."""
    head_lr: float = Field(1e-3, gt=0, le=MAX_AMOUNT)
    """Learning rate of the head."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Warm-up steps as a fraction of all steps. After warm-up, learning rates fall linearly to
    0."""
    bf16: bool | None = None
    """True to compute in bfloat16 mixed precision. null means true on a GPU that supports it."""
    seed: Seed = 0
    """Random seed."""
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two checkpoints."""
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two validations; null validates after every epoch."""
    patience: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Number of validations without a lower loss after which training stops with the best weights.
    null never stops early."""
    report_to: ReportTo = Field([])
    """Services that track losses and metrics. Each needs the Python package of its name."""

    def resolve_body_learning_rate(self, *, has_adapters: bool) -> float:
        """Return the learning rate of the base's adapters, or of its weights without adapters."""
        if self.backbone_lr is not None:
            return self.backbone_lr
        return _ADAPTERS_LR if has_adapters else _WEIGHTS_LR

    def uses_mixed_precision(self, device: str) -> bool:
        """Return whether training on a torch device, such as cuda:0, uses mixed precision."""
        return has_bfloat16(device) if self.bf16 is None else self.bf16
