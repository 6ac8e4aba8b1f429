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
    """Loss of each step: `cross_entropy`, `mse` (the squared error of the predicted probability),
    or `module:function` of your own."""
    balance: bool = False
    """Whether to weight sound and wrong steps so that both classes have the same total weight in
    the loss."""
    pair_weight: float = Field(0.0, ge=0, le=MAX_AMOUNT)
    """Weight of an additional ranking loss over pairs of a right and a wrong solution to the same
    problem, relative to the step loss. 0 turns it off."""
    epochs: float = Field(3.0, gt=0, le=MAX_COUNT)
    """Number of passes over the training solutions."""
    max_steps: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps, which replaces `epochs`; null uses `epochs`."""
    batch_size: int = Field(16, ge=1, le=MAX_COUNT)
    """Number of solutions per optimizer step, over all workers together."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens, padding included, that a worker processes at once. Gradients of
    parts are accumulated. A part holds at least one solution, or with `pair_weight` all solutions
    to one problem."""
    backbone_lr: float | None = Field(None, ge=0, le=MAX_AMOUNT)
    """Learning rate of the base's weights or of its LoRA adapters; 0 freezes the base. null takes
    1e-4 for adapters (`lora_rank`) and 1e-5 for the base's own weights."""
    head_lr: float = Field(1e-3, gt=0, le=MAX_AMOUNT)
    """Learning rate of the head."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Fraction of the optimizer steps during which the learning rates rise linearly from 0. After
    them they fall linearly to 0."""
    weight_decay: float = Field(0.0, ge=0, le=MAX_AMOUNT)
    """Weight decay of AdamW."""
    bf16: bool | None = None
    """Whether to compute in mixed precision with bfloat16. The weights keep their `dtype`. null
    does so on a GPU that has bfloat16."""
    seed: Seed = 0
    """Random seed for the head's initial weights and for the order of the training solutions."""
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps between two checkpoints."""
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps between two validations; null validates after every epoch."""
    patience: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Training stops after this many validations in a row without a lower loss, and keeps the best
    weights. null never stops early."""
    report_to: ReportTo = Field([])
    """Trackers to which losses and metrics are reported, besides the file `log.jsonl`: tensorboard,
    trackio, wandb or mlflow, each a package of its own; one name, a list, or none."""

    def body_rate(self, *, has_adapters: bool) -> float:
        """Learning rate of the base's weights, or of its adapters where it has them."""
        if self.backbone_lr is not None:
            return self.backbone_lr
        return _ADAPTERS_LR if has_adapters else _WEIGHTS_LR

    def mixes_precision(self, device: str) -> bool:
        """Whether a device computes in mixed precision; a torch device, such as cuda:0."""
        return has_bfloat16(device) if self.bf16 is None else self.bf16
