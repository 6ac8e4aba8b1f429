"""The heads of scorers: `likelihood`, and `token`.

A small model can rarely be trained to recompute a step, but it holds what it would have written.

Its two classes are Math-Shepherd's (arXiv 2312.08935), its format that of TRL and vLLM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel

from mclabel.core.errors import EngineError
from mclabel.engines.pretrained import load_tensors
from mclabel.prm.examples.batch import PADDING, StepBatch
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
        """One linear layer of the features, and one of the states if they are seen."""
        return [self.features] if self.hidden is None else [self.hidden, self.features]

    def save(self, folder: Path) -> None:
        """Save the language model, and the head in `HEAD_FILE`."""
        self.network.save_pretrained(folder)
        (folder / HEAD_FILE).parent.mkdir(exist_ok=True)
        save_file(self.head_state(), folder / HEAD_FILE, metadata={"format": "pt"})

    def head_state(self) -> dict[str, Tensor]:
        """The weights of the head."""
        state = self.state_dict()
        return {k: v.contiguous() for k, v in state.items() if not k.startswith("network.")}


# How likely a language model finds each step: the features of the likelihood head.
#
# A step that its own author would not write is suspect. Of the log-probabilities of a step's tokens
# the least and the sum are taken, over the step and over the solution up to it; the least finds the
# one token that does not belong, the sum ranks solutions by how probable they are.

NUM_FEATURES = 4
MIN_LOGPROB = -10.0
"""Least log-probability of a token; lower ones are clamped, so that one token of another
vocabulary does not dominate.
"""
MIN_SUM = -40.0
ROWS = 4096  # positions whose logits are held at a time


def token_logprobs(hidden: Tensor, head: nn.Module, batch: StepBatch) -> Tensor:
    """Log-probability of every token of the solutions at temperature 1.

    Args:
        hidden: the network's last hidden states [batch, seq, width].
        head: from hidden states to logits.
        batch: what the hidden states are of.

    Returns:
        [batch, seq], zero at prompts and padding.
    """
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    wanted = (place >= batch.num_prompt[:, None]) & (batch.mask == 1)
    before = torch.roll(wanted, -1, dims=1)
    before[:, -1] = False
    result = hidden.new_zeros(batch.ids.shape, dtype=torch.float32)
    result[wanted] = chosen_logprobs(hidden[before], batch.ids[wanted], head)
    return result


def chosen_logprobs(states: Tensor, targets: Tensor, head: nn.Module) -> Tensor:
    """Log-probability [tokens] of each token, from the state before it.

    Args:
        states: last hidden states [tokens, width], each of the token before.
        targets: ids [tokens].
        head: from hidden states to logits.
    """
    parts = []
    for start in range(0, len(states), ROWS):
        logits = head(states[start : start + ROWS]).float()
        chosen = logits.gather(1, targets[start : start + ROWS, None])[:, 0]
        parts.append(chosen - logits.logsumexp(-1))
    return torch.cat(parts)


def likelihood_features(logprobs: Tensor, batch: StepBatch) -> Tensor:
    """Step minimum, step sum, prefix minimum, prefix sum; in nats, clamped.

    Args:
        logprobs: [batch, seq], zero outside the solutions.
        batch: what they are of.

    Returns:
        [batch, steps, 4], zero for steps that are not there.
    """
    return features_at(logprobs, batch.positions)


def features_at(logprobs: Tensor, positions: Tensor) -> Tensor:
    """Return `likelihood_features` of steps that end at `positions` [batch, steps]."""
    logprobs = logprobs.clamp(min=MIN_LOGPROB)
    there = positions != PADDING
    ends = torch.where(there, positions, logprobs.shape[1] - 1)
    prefix_sum = logprobs.cumsum(1).gather(1, ends)
    step_sum = torch.diff(prefix_sum, dim=1, prepend=torch.zeros_like(prefix_sum[:, :1]))
    place = torch.arange(logprobs.shape[1], device=ends.device).expand_as(logprobs).contiguous()
    # Tokens after the last step, which are padding with log-probability 0, count to it.
    owner = torch.searchsorted(ends.contiguous(), place).clamp(max=ends.shape[1] - 1)
    step_min = torch.zeros_like(prefix_sum).scatter_reduce(1, owner, logprobs, "amin")
    prefix_min = step_min.cummin(1).values
    features = torch.stack(
        [
            step_min,
            step_sum.clamp(min=MIN_SUM),
            prefix_min,
            prefix_sum.clamp(min=MIN_SUM),
        ],
        dim=-1,
    )
    return features * there[..., None]


class TokenHead(StepModel):
    """A token classification model: class 1 is sound; of three, 0 is wrong, 1 neutral, 2 sound."""

    def __init__(self, network: PreTrainedModel) -> None:
        """Put the head of a token classification model in float32.

        Args:
            network: with its head.
        """
        super().__init__()
        self.network = network
        classifier = getattr(network, "score", None) or getattr(network, "classifier", None)
        if not isinstance(classifier, nn.Linear):
            raise EngineError(
                f"{type(network).__name__}: its classification head is not a single linear layer. "
                "Choose another base"
            )
        # In float32 on a body of any type, as vLLM has it: scores rest on differences of logits.
        self.head = [classifier.float()]  # in a list, or its weights would be registered twice

    @classmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """A classifier with a fresh head; see `start_step_model`."""
        names = ["wrong", "neutral", "sound"] if has_neutral else ["wrong", "sound"]
        network = load_network(
            AutoModelForTokenClassification,
            settings.base,
            revision=settings.revision,
            dtype=settings.dtype,
            trust_remote_code=settings.trust_remote_code,
            key=key,
            num_labels=len(names),
            fresh=("score.", "classifier."),
        )
        for part in network.modules():  # by default a tenth of the head's inputs is dropped
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        network.config.id2label = dict(enumerate(names))
        network.config.label2id = {name: i for i, name in enumerate(names)}
        return cls(network)

    @classmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """A classifier that was saved; see `load_step_model`."""
        return cls(
            load_network(
                AutoModelForTokenClassification,
                str(folder),
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                key="",
            )
        )

    @property
    def observed_width(self) -> int:
        """Width of the hidden states."""
        return self.head[0].in_features

    def observe(self, batch: StepBatch) -> Tensor:
        """The hidden state at each step, in float32."""
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        return at_steps(states, batch).float()

    def apply_head(self, observed: Tensor) -> Tensor:
        """Log-odds of two classes, or the logits of three."""
        with torch.autocast(observed.device.type, enabled=False):
            logits: Tensor = self.head[0](observed)
        return logits if logits.shape[-1] == 3 else logits[..., 1] - logits[..., 0]

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The base, and the head."""
        body = list(getattr(self.network, self.network.base_model_prefix).parameters())
        body_ids = {id(p) for p in body}
        return body, [p for p in self.parameters() if id(p) not in body_ids]

    def head_modules(self) -> list[nn.Module]:
        """The linear layer of the classes."""
        return [*self.head]

    def save(self, folder: Path) -> None:
        """Save a checkpoint of transformers, which every server loads."""
        self.network.save_pretrained(folder)


def prepare_step_token(network: PreTrainedModel, step_id: int, vocabulary: int) -> str:
    """Give the step token an embedding that can be trained; what was done, in words.

    A token that its model never saw may have an embedding of zeros, NaN or any size. If it is not
    finite, or its norm is beyond three times or under a third of the median, it becomes the mean
    of the vocabulary's. A token beyond the embedding's rows gets rows.

    Args:
        network: the scorer's, without a head that shares the embedding.
        step_id: step id of the step token.
        vocabulary: number of the tokenizer's tokens.
    """
    rows = cast(nn.Embedding, network.get_input_embeddings()).weight.shape[0]
    if step_id >= rows:
        network.resize_token_embeddings(vocabulary, mean_resizing=False)
    weight = cast(nn.Embedding, network.get_input_embeddings()).weight
    with torch.no_grad():
        norms = weight[: min(rows, vocabulary)].float().norm(dim=1)
        usual = norms[norms.isfinite() & (norms > 0)].median()
        norm = weight[step_id].float().norm()
        if step_id < rows and bool(usual / 3 < norm) and bool(norm < 3 * usual):
            return "kept the embedding of the step token as it is"
        vectors = weight[: min(rows, vocabulary)].float()
        usable = vectors.isfinite().all(dim=1)
        usable[step_id : step_id + 1] = False
        weight[step_id] = vectors[usable].mean(0).to(weight.dtype)
    return "set the embedding of the step token to the mean of the vocabulary's"
