"""Settings of a scorer's network: its base model, its head and its adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import MAX_COUNT, OPERATIONAL, OneOf, Settings, TrustsCode, rule
from mclabel.engines.devices import has_bfloat16


@dataclass(frozen=True, kw_only=True)
class HeadProperties:
    """Properties of a head that are needed before its network is loaded."""

    model: str
    """Class of the head's step model, as `module:Class`."""
    is_token_classifier: bool
    """True if the head is a token classifier. Only a token classifier can score steps at a step
    token or have three classes."""
    reads_logprobs: bool
    """True if the head reads the base's log-probabilities. It may also read hidden states."""
    runner: Literal["pooling", "generate"]
    """vLLM runner that serves the head. `pooling` returns the logits of every token; `generate`
    returns log-probabilities, to which the client applies the head.
    """


HEADS: Mapping[str, HeadProperties] = {
    "token": HeadProperties(
        model="mclabel.prm.model.heads:TokenHead",
        is_token_classifier=True,
        reads_logprobs=False,
        runner="pooling",
    ),
    "likelihood": HeadProperties(
        model="mclabel.prm.model.heads:LikelihoodHead",
        is_token_classifier=False,
        reads_logprobs=True,
        runner="generate",
    ),
}
"""All heads by name. Other packages cannot add heads: a saved scorer names its head, and code that
a file names must not be run."""

HEAD_FILE = "likelihood_head/head.safetensors"
"""Path of the weights of head=likelihood, relative to the model's folder. The file has a folder of
its own, because servers load all weight files beside a model's configuration.
"""


HeadName = Annotated[str, OneOf(tuple(HEADS))]


class ModelSettings(Settings):
    """Settings of the network that scores steps."""

    base: str
    """Language model to start from: a folder, a Hugging Face name, arith:policy, arith:strong or
    smollm2:135m."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model; null takes the latest."""
    trust_remote_code: TrustsCode = False
    """True if the base's own Python code may run (command line only)."""
    head: HeadName = "token"
    """`token` is a token classifier; `likelihood` also receives the base's likelihood of each
    step."""
    states: bool | None = None
    """True if head=likelihood also receives the base's hidden states at the steps. null means true
    if the base is trained, false if it is frozen."""
    lora_rank: int | None = Field(None, ge=1, le=65_536)
    """Rank of the LoRA adapters. They are trained at the rate `backbone_lr` instead of the base's
    weights. null trains without adapters."""
    lora_alpha: int = Field(32, gt=0, le=MAX_COUNT)
    """Scale of the LoRA adapters: their output is multiplied by lora_alpha / lora_rank."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Data type of the base's weights. `auto` takes bfloat16 for weights that are not trained on a
    GPU that supports it, and float32 otherwise."""
    gradient_checkpointing: Annotated[bool, OPERATIONAL] = False
    """Recompute activations in the backward pass, which saves memory and takes longer."""

    def weights_dtype(self, device: str, *, trains_weights: bool) -> str:
        """Return the name of the torch dtype of the base's weights.

        Args:
            device: torch device that holds the weights.
            trains_weights: true if the base's own weights are trained, not only adapters.
        """
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if not trains_weights and has_bfloat16(device) else "float32"

    @rule
    def _check_states_need_likelihood_head(self) -> str | None:
        if self.states is not None and not HEADS[self.head].reads_logprobs:
            return (
                f"states={str(self.states).lower()}: works only with head=likelihood, not with "
                f"head={self.head}. Remove states, or set head=likelihood"
            )
        return None
