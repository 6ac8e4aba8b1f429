"""The networks that score steps: a language model's body with one of two heads.

`token` is the standard `AutoModelForTokenClassification` with two classes at each step's token
(Math-Shepherd, arXiv 2312.08935; TRL's and vLLM's format). `likelihood` keeps the language
model's own head as well and adds what it says of each step's tokens (`likelihood`): a small model
can rarely be taught to recompute a step, but it knows what it would have written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from mclabel.errors import EngineError
from mclabel.policy.text import quiet_transformers
from mclabel.prm.batch import StepBatch
from mclabel.prm.likelihood import NUM_FEATURES, likelihood_features, token_logprobs

HeadKind = Literal["token", "likelihood"]
HEAD_FILE = "likelihood_head.safetensors"


class StepModel(nn.Module, ABC):
    """A network that gives a log-odds for every step."""

    network: PreTrainedModel
    body_ends_at_observe: bool
    """Whether everything that `observe` computes belongs to the body."""

    def forward(self, batch: StepBatch | Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], float32.

        Args:
            batch: solutions, or what `observe` made of them.
        """
        return self.judge(batch if isinstance(batch, Tensor) else self.observe(batch))

    @abstractmethod
    def observe(self, batch: StepBatch) -> Tensor:
        """What the body says of each step [batch, steps, width], all that `judge` needs."""

    @abstractmethod
    def judge(self, observed: Tensor) -> Tensor:
        """Log-odds [batch, steps] from what `observe` gives."""

    @abstractmethod
    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Parameters of the body and of the head."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save so that `load_step_model` reads it."""

    @abstractmethod
    def restore(self, folder: Path) -> None:
        """Take over the weights that `save` wrote."""


class TokenHead(StepModel):
    """A token classification model: class 1 is sound."""

    body_ends_at_observe = False

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network

    def observe(self, batch: StepBatch) -> Tensor:
        # The network's own head is inside it: what is left for `judge` is to compare the classes.
        logits = batch.run(self.network, lambda out: out.logits)
        return at_steps(logits.float(), batch)

    def judge(self, observed: Tensor) -> Tensor:
        return observed[..., 1] - observed[..., 0]

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        body = list(getattr(self.network, self.network.base_model_prefix).parameters())
        known = {id(p) for p in body}
        return body, [p for p in self.parameters() if id(p) not in known]

    def save(self, folder: Path) -> None:
        self.network.save_pretrained(folder)

    def restore(self, folder: Path) -> None:
        fresh = AutoModelForTokenClassification.from_pretrained(folder, dtype=self.network.dtype)
        self.network.load_state_dict(fresh.state_dict())


class LikelihoodHead(StepModel):
    """A causal language model whose likelihood of a step enters its score.

    logit = w · hidden + a · features + b, at each step's last token. Saved as the language model
    that it is, with the head in a file of its own.
    """

    body_ends_at_observe = True

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network
        width = network.config.get_text_config().hidden_size
        self.hidden = nn.Linear(width, 1)
        self.features = nn.Linear(NUM_FEATURES, 1, bias=False)
        for weight in (self.hidden.weight, self.hidden.bias, self.features.weight):
            nn.init.zeros_(weight)

    def observe(self, batch: StepBatch) -> Tensor:
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        language_head = cast(nn.Module, self.network.get_output_embeddings())
        features = likelihood_features(token_logprobs(states, language_head, batch), batch)
        return torch.cat([at_steps(states, batch).float(), features], dim=-1)

    def judge(self, observed: Tensor) -> Tensor:
        states, features = observed.split([observed.shape[-1] - NUM_FEATURES, NUM_FEATURES], -1)
        logits: Tensor = (self.hidden(states) + self.features(features))[..., 0]
        return logits

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        head = [*self.hidden.parameters(), *self.features.parameters()]
        return list(self.network.parameters()), head

    def save(self, folder: Path) -> None:
        self.network.save_pretrained(folder)
        save_file(self._head(), folder / HEAD_FILE, metadata={"format": "pt"})

    def restore(self, folder: Path) -> None:
        fresh = AutoModelForCausalLM.from_pretrained(folder, dtype=self.network.dtype)
        self.network.load_state_dict(fresh.state_dict())
        self.load_head(folder)

    def load_head(self, folder: Path) -> None:
        """Take over the head alone."""
        self.load_state_dict(load_file(folder / HEAD_FILE), strict=False)

    def _head(self) -> dict[str, Tensor]:
        state = self.state_dict()
        return {k: v.contiguous() for k, v in state.items() if not k.startswith("network.")}


def start_step_model(
    base: str, head: HeadKind, *, revision: str | None = None, dtype: str = "float32"
) -> StepModel:
    """A step model with a fresh head on a pretrained language model.

    Args:
        base: folder or Hugging Face name of a causal language model.
        head: which head.
        revision: commit or tag of a Hugging Face model.
        dtype: torch dtype of the body.

    Raises:
        EngineError: the base cannot be loaded, or has no token classification.
    """
    if head == "likelihood":
        return LikelihoodHead(_load(AutoModelForCausalLM, base, revision, dtype))
    network = _load(AutoModelForTokenClassification, base, revision, dtype, num_labels=2)
    network.config.id2label = {0: "wrong", 1: "sound"}
    network.config.label2id = {"wrong": 0, "sound": 1}
    return TokenHead(network)


def load_step_model(folder: Path, head: HeadKind, *, dtype: str = "float32") -> StepModel:
    """A step model that was saved.

    Raises:
        EngineError: it cannot be loaded.
    """
    if head == "token":
        return TokenHead(_load(AutoModelForTokenClassification, str(folder), None, dtype))
    model = LikelihoodHead(_load(AutoModelForCausalLM, str(folder), None, dtype))
    model.load_head(folder)
    return model


def at_steps(states: Tensor, batch: StepBatch) -> Tensor:
    """Hidden states [batch, seq, width] at the steps' positions [batch, steps, width]."""
    at = batch.positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, at)


def _load(
    kind: Any, base: str, revision: str | None, dtype: str, **arguments: Any
) -> PreTrainedModel:
    quiet_transformers()
    try:
        network: PreTrainedModel = kind.from_pretrained(
            base, revision=revision, dtype=getattr(torch, dtype), **arguments
        )
    except (OSError, ValueError) as error:
        raise EngineError(f"base={base!r}: cannot be loaded: {error}") from error
    return network
