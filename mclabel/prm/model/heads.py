"""The two heads of step models: `likelihood` and `token`.

A small model can rarely be trained to check a step by calculation. But its likelihood of the step
shows whether it would have written the step itself, and head=likelihood uses this.

The head `token` has the two classes of Math-Shepherd (arXiv 2312.08935). Its checkpoints have the
format that TRL and vLLM use.
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
from mclabel.prm.model.network import StepModel, load_network, select_step_states
from mclabel.prm.model.settings import HEAD_FILE, ModelSettings


class LikelihoodHead(StepModel):
    """A causal language model whose likelihood of a step enters the step's score.

    The logit of a step is w · hidden + a · features + b, with the hidden state at its last token
    and four likelihood features (`compute_likelihood_features`). If the body is frozen, the term w
    · hidden is better left out (`sees_states=False`). The language model is saved unchanged in
    form, with the head in a separate file.
    """

    def __init__(self, network: PreTrainedModel, *, sees_states: bool = True) -> None:
        """Add a head with zero weights to a language model.

        Args:
            network: a causal language model.
            sees_states: true if the head also reads hidden states.
        """
        super().__init__()
        self.network = network
        width = network.config.get_text_config().hidden_size if sees_states else 0
        self.hidden = nn.Linear(width, 1) if sees_states else None
        self.features = nn.Linear(NUM_FEATURES, 1, bias=not sees_states)
        for weight in self.get_head_weights().values():
            nn.init.zeros_(weight)

    @classmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        setting_key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """Load a language model and add a head with zero weights (called by `start_step_model`)."""
        assert not has_neutral, "three classes need a token classifier"
        network = load_network(
            AutoModelForCausalLM,
            settings.base,
            revision=settings.revision,
            dtype=settings.dtype,
            trust_remote_code=settings.trust_remote_code,
            setting_key=setting_key,
        )
        return cls(network, sees_states=trains_body if settings.states is None else settings.states)

    @classmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """Load a saved language model and its head (called by `load_step_model`)."""
        weights = load_tensors(folder / HEAD_FILE)
        network = load_network(
            AutoModelForCausalLM,
            str(folder),
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            setting_key="",
        )
        model = cls(network, sees_states="hidden.weight" in weights)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.get_head_weights().items()}
        if wanted != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
            raise EngineError(
                f"{folder / HEAD_FILE}: holds weights that do not fit this model's head. Copy the "
                "whole folder again, or train the model again"
            )
        model.load_state_dict(weights, strict=False)
        return model

    @property
    def head_input_width(self) -> int:
        """Return the number of likelihood features, plus the hidden width if states are read."""
        return NUM_FEATURES + (0 if self.hidden is None else self.hidden.in_features)

    def compute_head_inputs(self, batch: StepBatch) -> Tensor:
        """Return the input of the head for each step.

        Its shape is [batch, steps, width]: the hidden state, if the head reads it, then the
        features.
        """
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        logprobs = compute_token_logprobs(
            states, cast(nn.Module, self.network.get_output_embeddings()), batch
        )
        features = compute_likelihood_features(logprobs, batch.positions)
        return self.join_head_inputs(select_step_states(states, batch), features)

    def join_head_inputs(self, hidden_states: Tensor, features: Tensor) -> Tensor:
        """Join hidden states and features of steps in the form that `compute_head_inputs` returns.

        Args:
            hidden_states: hidden states at the steps' positions [..., steps, width].
            features: likelihood features of the steps [..., steps, 4].
        """
        return (
            features
            if self.hidden is None
            else torch.cat([hidden_states.float(), features], dim=-1)
        )

    def apply_head(self, head_inputs: Tensor) -> Tensor:
        """Return the log-odds [batch, steps], a linear function of the head's inputs."""
        logits: Tensor = self.features(head_inputs[..., -NUM_FEATURES:])
        if self.hidden is not None:
            logits = logits + self.hidden(head_inputs[..., :-NUM_FEATURES])
        return logits[..., 0]

    def body_and_head_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters of the language model and of the head."""
        return list(self.network.parameters()), [
            p for module in self.head_modules() for p in module.parameters()
        ]

    def head_modules(self) -> list[nn.Module]:
        """Return the linear layers of the states, if they are read, and of the features."""
        return [self.features] if self.hidden is None else [self.hidden, self.features]

    def save(self, folder: Path) -> None:
        """Save the language model, and the head in `HEAD_FILE`."""
        self.network.save_pretrained(folder)
        (folder / HEAD_FILE).parent.mkdir(exist_ok=True)
        save_file(self.get_head_weights(), folder / HEAD_FILE, metadata={"format": "pt"})

    def make_feature_weights(self, weights: Tensor, bias: Tensor) -> dict[str, Tensor]:
        """Return weights by name with which the head is a given function of the features alone.

        Args:
            weights: weight of each likelihood feature [4].
            bias: log-odds of a step whose features are all zero [1].
        """
        biased = "features" if self.hidden is None else "hidden"
        return {"features.weight": weights[None], f"{biased}.bias": bias}

    def get_head_weights(self) -> dict[str, Tensor]:
        """Return the head's weights by name."""
        state = self.state_dict()
        return {k: v.contiguous() for k, v in state.items() if not k.startswith("network.")}


# The features of the likelihood head: how likely a language model finds each step.
#
# A step that the model would not write itself is suspect. The features are the minimum and the sum
# of token log-probabilities, over the step and over the solution up to its end. The minimum finds a
# single wrong token. The sum ranks solutions by their probability.

NUM_FEATURES = 4
"""Number of likelihood features of a step: minimum and sum of log-probabilities in the step, then
in the solution up to the step's end."""
MIN_LOGPROB = -10.0
"""Lower bound of a token's log-probability in nats. Lower values are clamped, so that a single
unusual token does not dominate the features.
"""
MIN_SUM = -40.0
"""Lower bound of a feature that sums log-probabilities, in nats."""
ROWS = 4096  # maximum number of positions whose logits are in memory at once


def compute_token_logprobs(hidden_states: Tensor, head: nn.Module, batch: StepBatch) -> Tensor:
    """Return the log-probability of every token of the solutions at temperature 1, in nats.

    Args:
        hidden_states: the network's last hidden states [batch, seq, width].
        head: layer that maps hidden states to logits over the vocabulary.
        batch: the solutions whose hidden states are given.

    Returns:
        Log-probabilities [batch, seq], zero at prompts and padding.
    """
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    wanted = (place >= batch.num_prompt[:, None]) & (batch.mask == 1)
    before = torch.roll(wanted, -1, dims=1)
    before[:, -1] = False
    result = hidden_states.new_zeros(batch.ids.shape, dtype=torch.float32)
    result[wanted] = compute_target_logprobs(hidden_states[before], batch.ids[wanted], head)
    return result


def compute_target_logprobs(preceding_states: Tensor, token_ids: Tensor, head: nn.Module) -> Tensor:
    """Return the log-probability of each token in nats [tokens], from the state before it.

    Args:
        preceding_states: for each token, the last hidden state of the token before it [tokens,
            width].
        token_ids: ids of the tokens [tokens].
        head: layer that maps hidden states to logits over the vocabulary.
    """
    parts = []
    for start in range(0, len(preceding_states), ROWS):
        logits = head(preceding_states[start : start + ROWS]).float()
        chosen = logits.gather(1, token_ids[start : start + ROWS, None])[:, 0]
        parts.append(chosen - logits.logsumexp(-1))
    return torch.cat(parts)


def compute_likelihood_features(logprobs: Tensor, positions: Tensor) -> Tensor:
    """Return four features of each step, from the log-probabilities of its tokens.

    They are the minimum and the sum over the step, then the minimum and the sum over the solution
    up to the step's end. They are in nats and clamped at `MIN_LOGPROB` and `MIN_SUM`.

    Args:
        logprobs: log-probabilities [batch, seq], zero outside the solutions.
        positions: token indices [batch, steps] at which the steps end, or `PADDING`.

    Returns:
        Features [batch, steps, 4], zero after a solution's last step.
    """
    logprobs = logprobs.clamp(min=MIN_LOGPROB)
    there = positions != PADDING
    ends = torch.where(there, positions, logprobs.shape[1] - 1)
    prefix_sum = logprobs.cumsum(1).gather(1, ends)
    step_sum = torch.diff(prefix_sum, dim=1, prepend=torch.zeros_like(prefix_sum[:, :1]))
    place = torch.arange(logprobs.shape[1], device=ends.device).expand_as(logprobs).contiguous()
    # Padding after the last step counts as part of that step: its log-probabilities are 0.
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
    """A token classification model, which classifies steps at their last tokens or step tokens.

    With two classes, 0 is wrong and 1 is sound. With three, 0 is wrong, 1 is neutral, 2 is sound.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        """Wrap a token classification model, and convert its head to float32.

        Args:
            network: a token classification model with its head.
        """
        super().__init__()
        self.network = network
        classifier = getattr(network, "score", None) or getattr(network, "classifier", None)
        if not isinstance(classifier, nn.Linear):
            raise EngineError(
                f"{type(network).__name__}: its classification head is not a single linear layer. "
                "Choose another base"
            )
        # The head is in float32, as in vLLM, because scores depend on small differences of logits.
        self.head = [classifier.float()]  # the list prevents a second registration of its weights

    @classmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        setting_key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """Load a base model as a classifier with a new head (called by `start_step_model`)."""
        names = ["wrong", "neutral", "sound"] if has_neutral else ["wrong", "sound"]
        network = load_network(
            AutoModelForTokenClassification,
            settings.base,
            revision=settings.revision,
            dtype=settings.dtype,
            trust_remote_code=settings.trust_remote_code,
            setting_key=setting_key,
            num_labels=len(names),
            optional_weight_prefixes=("score.", "classifier."),
        )
        for part in network.modules():  # the default dropout before the head is 0.1
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        network.config.id2label = dict(enumerate(names))
        network.config.label2id = {name: i for i, name in enumerate(names)}
        return cls(network)

    @classmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """Load a saved classifier (called by `load_step_model`)."""
        return cls(
            load_network(
                AutoModelForTokenClassification,
                str(folder),
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                setting_key="",
            )
        )

    @property
    def head_input_width(self) -> int:
        """Return the width of the hidden states."""
        return self.head[0].in_features

    def compute_head_inputs(self, batch: StepBatch) -> Tensor:
        """Return the hidden state at each step's position, in float32 [batch, steps, width]."""
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        return select_step_states(states, batch).float()

    def apply_head(self, head_inputs: Tensor) -> Tensor:
        """Return log-odds [batch, steps] for two classes, logits [batch, steps, 3] for three."""
        with torch.autocast(head_inputs.device.type, enabled=False):
            logits: Tensor = self.head[0](head_inputs)
        return logits if logits.shape[-1] == 3 else logits[..., 1] - logits[..., 0]

    def body_and_head_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters of the base and of the head."""
        body = list(getattr(self.network, self.network.base_model_prefix).parameters())
        body_ids = {id(p) for p in body}
        return body, [p for p in self.parameters() if id(p) not in body_ids]

    def head_modules(self) -> list[nn.Module]:
        """Return the linear layer that computes the logits of the classes."""
        return [*self.head]

    def save(self, folder: Path) -> None:
        """Save a plain transformers checkpoint, which any server can load."""
        self.network.save_pretrained(folder)


def prepare_step_token(network: PreTrainedModel, step_id: int, vocabulary_size: int) -> str:
    """Make sure that the step token has an embedding that can be trained.

    If the model never saw the token in training, its embedding may be zero, NaN or of any size.
    An embedding is replaced by the mean embedding of the vocabulary if it is not finite, or if its
    norm is more than three times or less than a third of the median. If the token has no row in the
    embedding matrix, the matrix is enlarged.

    Args:
        network: network of the scorer. Its head must not share the embedding.
        step_id: token id of the step token.
        vocabulary_size: number of tokens in the tokenizer.

    Returns:
        A sentence that says what was done.
    """
    rows = cast(nn.Embedding, network.get_input_embeddings()).weight.shape[0]
    if step_id >= rows:
        network.resize_token_embeddings(vocabulary_size, mean_resizing=False)
    weight = cast(nn.Embedding, network.get_input_embeddings()).weight
    with torch.no_grad():
        norms = weight[: min(rows, vocabulary_size)].float().norm(dim=1)
        usual = norms[norms.isfinite() & (norms > 0)].median()
        norm = weight[step_id].float().norm()
        if step_id < rows and bool(usual / 3 < norm) and bool(norm < 3 * usual):
            return "kept the embedding of the step token as it is"
        vectors = weight[: min(rows, vocabulary_size)].float()
        usable = vectors.isfinite().all(dim=1)
        usable[step_id : step_id + 1] = False
        weight[step_id] = vectors[usable].mean(0).to(weight.dtype)
    return "set the embedding of the step token to the mean of the vocabulary's"
