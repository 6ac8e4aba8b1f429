"""The network of a scorer: its base, its head, and which of its weights are adapted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mclabel.settings import OPERATIONAL, RUNS_CODE, OneOf, Settings, rule


@dataclass(frozen=True, kw_only=True)
class Head:
    """What must be known of a head before its network is loaded."""

    model: str
    """`module:Class` of its step model."""
    is_token_classifier: bool
    """It is a classifier of tokens: steps may be scored at a token of their own, classes may be
    three, layers may be put on top of the base, and a teacher may train it."""
    reads_logprobs: bool
    """It reads the base's log-probabilities, and hidden states if asked: it can be a teacher."""
    runner: Literal["pooling", "generate"]
    """Of vLLM, which serves it: by its logits of every token, or by log-probabilities to which a
    client applies the head."""


HEADS: Mapping[str, Head] = {
    "token": Head(
        model="mclabel.prm.model.token_head:TokenHead",
        is_token_classifier=True,
        reads_logprobs=False,
        runner="pooling",
    ),
    "likelihood": Head(
        model="mclabel.prm.model.likelihood_head:LikelihoodHead",
        is_token_classifier=False,
        reads_logprobs=True,
        runner="generate",
    ),
}
"""Heads by their names. A saved scorer names its head, so there are none but these: code that a
file names is not run."""

HEAD_FILE = "likelihood_head/head.safetensors"
"""Of head=likelihood; in a folder of its own: servers load every file of weights beside a model's
configuration."""

HeadName = Annotated[str, OneOf(tuple(HEADS))]


class ModelSettings(Settings):
    """The network that scores steps."""

    base: str
    """Causal language model to start from: folder, Hugging Face name, arith:policy,
    arith:strong."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model."""
    trust_remote_code: Annotated[bool, RUNS_CODE] = False
    """Run Python code that comes with the base. A file alone must not say so."""
    head: HeadName = "token"
    """`token`: token classification, the standard. `likelihood`: also reads the base's likelihood
    of each step's tokens; better where the base is small."""
    extra_layers: int = Field(0, ge=0)
    """Layers on top of the base's that see what it expected of each token, trained at `head_lr`; of
    head=token with backbone_lr=0. Steps are scored at their last tokens. Any server loads the
    result."""
    states: bool | None = None
    """Whether head=likelihood sees hidden states beside likelihoods. By default where the base is
    trained; a frozen base's states cost accuracy until labels are many."""
    lora_rank: int | None = Field(None, ge=1)
    """Train adapters of this rank in place of the base's own weights, at `backbone_lr`."""
    lora_alpha: int = Field(32, gt=0)
    """The output of adapters is scaled by lora_alpha / lora_rank."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the base's weights."""
    gradient_checkpointing: Annotated[bool, OPERATIONAL] = False
    """Keep only the inputs of each layer in memory, and compute the rest again for the
    gradients."""

    @rule
    def _layers_are_of_a_classifier(self) -> str | None:
        if self.extra_layers and not HEADS[self.head].is_token_classifier:
            return (
                f"extra_layers={self.extra_layers}: is for head=token, not head={self.head}. Leave "
                "it out"
            )
        return None

    @rule
    def _states_are_of_a_reader(self) -> str | None:
        if self.states is not None and not HEADS[self.head].reads_logprobs:
            return (
                f"states={str(self.states).lower()}: is for head=likelihood, not head={self.head}. "
                "Leave it out"
            )
        return None
