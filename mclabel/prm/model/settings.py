"""The network of a scorer: its base, its head, and which of its weights are adapted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import MAX_COUNT, OPERATIONAL, OneOf, Settings, TrustsCode, rule
from mclabel.engines.devices import has_bfloat16


@dataclass(frozen=True, kw_only=True)
class Head:
    """Properties of a head that are needed before its network is loaded."""

    model: str
    """`module:Class` of its step model."""
    is_token_classifier: bool
    """It is a classifier of tokens: steps may be scored at a token of their own, and classes may be
    three."""
    reads_logprobs: bool
    """It reads the base's log-probabilities, and hidden states if asked."""
    runner: Literal["pooling", "generate"]
    """Runner of vLLM that serves it: by the logits of every token, or by log-probabilities to
    which a client applies the head.
    """


HEADS: Mapping[str, Head] = {
    "token": Head(
        model="mclabel.prm.model.heads:TokenHead",
        is_token_classifier=True,
        reads_logprobs=False,
        runner="pooling",
    ),
    "likelihood": Head(
        model="mclabel.prm.model.heads:LikelihoodHead",
        is_token_classifier=False,
        reads_logprobs=True,
        runner="generate",
    ),
}
"""Heads by their names. A saved scorer names its head, so there are none but these: code that a
file names is not run."""

HEAD_FILE = "likelihood_head/head.safetensors"
"""File of head=likelihood; in a folder of its own, because servers load every file of weights
beside a model's configuration.
"""


HeadName = Annotated[str, OneOf(tuple(HEADS))]


class ModelSettings(Settings):
    """The network that scores steps."""

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
    """True if head=likelihood receives hidden states, too. null: if the base is trained."""
    lora_rank: int | None = Field(None, ge=1, le=65_536)
    """Rank of LoRA adapters, trained at `backbone_lr` in place of the base."""
    lora_alpha: int = Field(32, gt=0, le=MAX_COUNT)
    """LoRA output is multiplied by lora_alpha / lora_rank."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Data type of the base's weights. `auto`: bfloat16 for a frozen base on a GPU, else
    float32."""
    gradient_checkpointing: Annotated[bool, OPERATIONAL] = False
    """Recompute activations, which saves memory and takes longer."""

    def weights_dtype(self, device: str, *, trains_weights: bool) -> str:
        """Name of the torch dtype of the base's weights.

        Args:
            device: torch device that they are for.
            trains_weights: they are trained themselves; adapters are others.
        """
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if not trains_weights and has_bfloat16(device) else "float32"

    @rule
    def _states_are_of_a_reader(self) -> str | None:
        if self.states is not None and not HEADS[self.head].reads_logprobs:
            return (
                f"states={str(self.states).lower()}: works only with head=likelihood, not with "
                f"head={self.head}. Remove it, or set head=likelihood"
            )
        return None
