"""How a step model is fitted to examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from mclabel.settings import OPERATIONAL, Named, Settings

LOSSES: Mapping[str, str] = {
    "cross_entropy": "mclabel.prm.training.losses:cross_entropy",
    "mse": "mclabel.prm.training.losses:squared_error",
}
"""Name in a configuration, and where the function stands: log-odds and targets of steps, to a loss
for each."""


class TrainerSettings(Settings):
    """Losses, rates, and the lengths of training."""

    loss: Annotated[str, Named("losses")] = "cross_entropy"
    """Loss of a step: `cross_entropy`, or `mse`, the squared error of the predicted chance. It may
    also be a function of your own, `module:function`."""
    balance: bool = False
    """Weight sound and wrong steps so that both classes count the same in total."""
    pair_weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of a loss over pairs of a right and a wrong solution of one problem, beside that of
    steps. Solutions of a problem then share a batch."""
    epochs: float = Field(3.0, gt=0, allow_inf_nan=False)
    """Number of passes over the examples."""
    max_steps: int | None = Field(None, ge=1)
    """Number of optimizer steps; it replaces `epochs`."""
    batch_size: int = Field(16, ge=1)
    """Number of solutions in an optimizer step, over all workers together."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1)
    """Tokens of a worker, padding included, that are in memory at a time: gradients are added up.
    One solution at least, with `pair_weight` all of a problem's in the batch."""
    backbone_lr: float = Field(1e-5, ge=0, allow_inf_nan=False)
    """Learning rate of the base's own weights; 0 freezes them."""
    head_lr: float = Field(1e-3, gt=0, allow_inf_nan=False)
    """Learning rate of the head, and of `extra_layers`."""
    warmup: float = Field(0.05, ge=0, lt=1, allow_inf_nan=False)
    """Share of the steps over which the rates rise; then they fall linearly to 0."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight decay of AdamW."""
    bf16: bool = False
    """Compute in bfloat16 where that is safe, on weights kept as they are."""
    seed: int = Field(0, ge=0)
    """Seed of the head's first weights and of the order of the examples."""
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1)
    """Optimizer steps between two checkpoints."""
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1)
    """Optimizer steps between two validations; by default one after every epoch."""
    patience: int | None = Field(None, ge=1)
    """Validations without a lower loss after which training stops; the best weights are kept."""
    report_to: Annotated[list[Literal["tensorboard", "wandb"]], OPERATIONAL] = Field([])
    """Also report the figures to these services. `log.jsonl` has them in any case."""
