"""The head `likelihood`: a language model whose own likelihood of a step enters its score.

A small model can rarely be trained to recompute a step, but it holds what it would have written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from mclabel.engines.pretrained import load_tensors
from mclabel.errors import EngineError
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.model.likelihood import NUM_FEATURES, likelihood_features, token_logprobs
from mclabel.prm.model.network import StepModel, at_steps, load_network
from mclabel.prm.model.settings import HEAD_FILE, ModelSettings


class LikelihoodHead(StepModel):
    """A causal language model whose likelihood of a step enters its score.

    logit = w · hidden + a · features + b, at each step's last token; without w · hidden where the
    head is to see likelihoods alone, which is better on a body that is not trained. Saved as the
    language model that it is, with the head in a file of its own.
    """

    def __init__(self, network: PreTrainedModel, *, sees_states: bool = True) -> None:
        """Put a head of zeros on a language model.

        Args:
            network: a causal language model.
            sees_states: the head sees hidden states, too.
        """
        super().__init__()
        self.network = network
        width = network.config.get_text_config().hidden_size if sees_states else 0
        self.hidden = nn.Linear(width, 1) if sees_states else None
        self.features = nn.Linear(NUM_FEATURES, 1, bias=not sees_states)
        for weight in self.head_state().values():
            nn.init.zeros_(weight)

    @classmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """A language model with a head of zeros; see `start_step_model`."""
        assert not has_neutral, "for classifiers of tokens"
        network = load_network(
            AutoModelForCausalLM,
            settings.base,
            revision=settings.revision,
            dtype=settings.dtype,
            trust_remote_code=settings.trust_remote_code,
            key=key,
        )
        return cls(network, sees_states=trains_body if settings.states is None else settings.states)

    @classmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """A language model and its head that were saved; see `load_step_model`."""
        weights = load_tensors(folder / HEAD_FILE)
        network = load_network(
            AutoModelForCausalLM,
            str(folder),
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            key="",
        )
        model = cls(network, sees_states="hidden.weight" in weights)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.head_state().items()}
        if wanted != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
            raise EngineError(
                f"{folder / HEAD_FILE}: holds weights that do not fit this model's head. Copy the "
                "whole folder again, or train the model again"
            )
        model.load_state_dict(weights, strict=False)
        return model

    @property
    def observed_width(self) -> int:
        """The hidden state, if it is seen, and the likelihood features."""
        return NUM_FEATURES + (0 if self.hidden is None else self.hidden.in_features)

    def observe(self, batch: StepBatch) -> Tensor:
        """Likelihood features of each step, behind its hidden state if that is seen."""
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        language_head = cast(nn.Module, self.network.get_output_embeddings())
        logprobs = token_logprobs(states, language_head, batch)
        features = likelihood_features(logprobs, batch)
        return self.observed(at_steps(states, batch), features)

    def observed(self, ends: Tensor, features: Tensor) -> Tensor:
        """The result of `observe`, from the states at the steps and their likelihood features."""
        return features if self.hidden is None else torch.cat([ends.float(), features], dim=-1)

    def apply_head(self, observed: Tensor) -> Tensor:
        """Log-odds, linear in what `observe` gives."""
        logits: Tensor = self.features(observed[..., -NUM_FEATURES:])
        if self.hidden is not None:
            logits = logits + self.hidden(observed[..., :-NUM_FEATURES])
        return logits[..., 0]

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The language model, and the weights of the head."""
        head = [p for module in self.head_modules() for p in module.parameters()]
        return list(self.network.parameters()), head

    def head_modules(self) -> list[nn.Module]:
        """One linear layer of the features, one of the states if they are seen, and one of the
        concentration if there is one.
        """
        linear = [self.features] if self.hidden is None else [self.hidden, self.features]
        return [*linear, *self.concentration_modules()]

    def save(self, folder: Path) -> None:
        """Save the language model, and the head in `HEAD_FILE`."""
        self.network.save_pretrained(folder)
        (folder / HEAD_FILE).parent.mkdir(exist_ok=True)
        save_file(self.head_state(), folder / HEAD_FILE, metadata={"format": "pt"})
        self.save_concentration(folder)

    def head_state(self) -> dict[str, Tensor]:
        """The weights of the head, without the concentration's."""
        others = ("network.", "concentration.")
        state = self.state_dict()
        return {k: v.contiguous() for k, v in state.items() if not k.startswith(others)}
