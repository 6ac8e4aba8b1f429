"""The networks that score steps: a language model's body with one of two heads.

`token` is the standard `AutoModelForTokenClassification` with two classes at each step's token
(Math-Shepherd, arXiv 2312.08935; TRL's and vLLM's format). `likelihood` keeps the language
model's own head as well and adds what it says of each step's tokens (`likelihood`): a small model
can rarely be taught to recompute a step, but it knows what it would have written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from mclabel.errors import EngineError
from mclabel.policy.pretrained import load_model, load_tensors
from mclabel.policy.text import quiet_transformers
from mclabel.prm.batch import StepBatch
from mclabel.prm.hindsight import with_hindsight
from mclabel.prm.likelihood import NUM_FEATURES, likelihood_features, token_logprobs
from mclabel.prm.lora import is_adapter
from mclabel.prm.losses import three_class_log_odds

HeadKind = Literal["token", "likelihood"]
HEAD_FILE = "likelihood_head/head.safetensors"
"""In a folder of its own: servers load every file of weights beside a model's configuration."""


class StepModel(nn.Module, ABC):
    """A network that gives a log-odds for every step."""

    network: PreTrainedModel

    def forward(self, batch: StepBatch | Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], or of three classes [batch, steps, 3].

        Args:
            batch: solutions, or what `observe` made of them.
        """
        return self.judge(batch if isinstance(batch, Tensor) else self.observe(batch))

    @staticmethod
    def log_odds(logits: Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], from what `forward` gives."""
        return three_class_log_odds(logits) if logits.dim() == 3 else logits

    @property
    @abstractmethod
    def observed_width(self) -> int:
        """Numbers that `observe` gives for a step."""

    @abstractmethod
    def observe(self, batch: StepBatch) -> Tensor:
        """What the body says of each step [batch, steps, width], all that `judge` needs."""

    @abstractmethod
    def judge(self, observed: Tensor) -> Tensor:
        """What `forward` gives, from what `observe` gives."""

    @abstractmethod
    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Parameters of the body and of the head."""

    @property
    def extra(self) -> list[nn.Module]:
        """Layers of the network that belong to the head."""
        return []

    @abstractmethod
    def head_modules(self) -> list[nn.Module]:
        """The layers of the head."""

    def freeze(self, *, body: bool) -> None:
        """Fix what is not trained: the body, or of a body with adapters all but these."""
        adapted = any(is_adapter(name) for name, _ in self.named_parameters())
        inside = {id(parameter) for parameter in self.parts()[0]}
        for name, parameter in self.named_parameters():
            if id(parameter) in inside:
                parameter.requires_grad_(not body and (is_adapter(name) or not adapted))

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters of what is not fixed."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save so that `load_step_model` reads it. Adapters must have been merged."""


class TokenHead(StepModel):
    """A token classification model: class 1 is sound; of three, 0 is wrong, 1 neutral, 2 sound."""

    def __init__(
        self, network: PreTrainedModel, *, extra: Sequence[nn.Module] = (), is_taught: bool = False
    ) -> None:
        """Args:
        network: with its head.
        extra: parts of its body that belong to the head (`hindsight`).
        is_taught: it also learns what a teacher expected (`teacher`).
        """
        super().__init__()
        self.network = network
        self._extra = list(extra)
        found = getattr(network, "score", None) or getattr(network, "classifier", None)
        if not isinstance(found, nn.Linear):
            raise EngineError(
                f"{type(network).__name__}: its head is not one linear layer. Choose another base"
            )
        # In float32 on a body of any type, as vLLM has it: scores rest on differences of logits.
        self.head = [found.float()]  # in a list, or its weights would be registered twice
        self.lesson = _Lesson(found.in_features) if is_taught else None

    def forward(  # type: ignore[override]
        self, batch: StepBatch | Tensor, *, lesson: bool = False
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """As of any step model; with `lesson` also what it takes for every token's log-probability
        [batch, seq], and for the likelihood features of every step [batch, steps, features].
        """
        if not lesson:
            return super().forward(batch)
        assert isinstance(batch, StepBatch) and self.lesson is not None
        states = self._states(batch)
        ends = at_steps(states, batch).float()
        with torch.autocast(states.device.type, enabled=False):
            return self.judge(ends), *self.lesson(states.float(), ends)

    @property
    def observed_width(self) -> int:
        return self.head[0].in_features

    def observe(self, batch: StepBatch) -> Tensor:
        return at_steps(self._states(batch), batch).float()

    def _states(self, batch: StepBatch) -> Tensor:
        return batch.run(self.network.base_model, lambda out: out.last_hidden_state)

    def judge(self, observed: Tensor) -> Tensor:
        with torch.autocast(observed.device.type, enabled=False):
            logits: Tensor = self.head[0](observed)
        return logits if logits.shape[-1] == 3 else logits[..., 1] - logits[..., 0]

    @property
    def extra(self) -> list[nn.Module]:
        return self._extra

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        extra = {id(p) for layer in self._extra for p in layer.parameters()}
        whole = getattr(self.network, self.network.base_model_prefix).parameters()
        body = [p for p in whole if id(p) not in extra]
        known = {id(p) for p in body}
        return body, [p for p in self.parameters() if id(p) not in known]

    def head_modules(self) -> list[nn.Module]:
        return [*self.head] if self.lesson is None else [*self.head, self.lesson]

    def save(self, folder: Path) -> None:
        self.network.save_pretrained(folder)


class _Lesson(nn.Module):
    """What says, in training alone, what a teacher expected."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.steps = nn.Linear(width, 1), nn.Linear(width, NUM_FEATURES)

    def forward(self, states: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Of states [batch, seq, width], and of those at the ends of steps."""
        return self.tokens(states)[..., 0], self.steps(ends)


class LikelihoodHead(StepModel):
    """A causal language model whose likelihood of a step enters its score.

    logit = w · hidden + a · features + b, at each step's last token; without w · hidden where the
    head is to see likelihoods alone, which is better on a body that is not trained. Saved as the
    language model that it is, with the head in a file of its own.
    """

    def __init__(self, network: PreTrainedModel, *, sees_states: bool = True) -> None:
        super().__init__()
        self.network = network
        width = network.config.get_text_config().hidden_size if sees_states else 0
        self.hidden = nn.Linear(width, 1) if sees_states else None
        self.features = nn.Linear(NUM_FEATURES, 1, bias=not sees_states)
        for weight in self.head_state().values():
            nn.init.zeros_(weight)

    @property
    def observed_width(self) -> int:
        return NUM_FEATURES + (0 if self.hidden is None else self.hidden.in_features)

    def observe(self, batch: StepBatch) -> Tensor:
        return self.read(batch)[0]

    def read(self, batch: StepBatch) -> tuple[Tensor, Tensor]:
        """What `observe` gives, and the log-probability of every token [batch, seq]."""
        states = batch.run(self.network.base_model, lambda out: out.last_hidden_state)
        language_head = cast(nn.Module, self.network.get_output_embeddings())
        logprobs = token_logprobs(states, language_head, batch)
        features = likelihood_features(logprobs, batch)
        if self.hidden is None:
            return features, logprobs
        return torch.cat([at_steps(states, batch).float(), features], dim=-1), logprobs

    def judge(self, observed: Tensor) -> Tensor:
        logits: Tensor = self.features(observed[..., -NUM_FEATURES:])
        if self.hidden is not None:
            logits = logits + self.hidden(observed[..., :-NUM_FEATURES])
        return logits[..., 0]

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        head = [p for module in self.head_modules() for p in module.parameters()]
        return list(self.network.parameters()), head

    def head_modules(self) -> list[nn.Module]:
        return [self.features] if self.hidden is None else [self.hidden, self.features]

    def save(self, folder: Path) -> None:
        self.network.save_pretrained(folder)
        (folder / HEAD_FILE).parent.mkdir(exist_ok=True)
        save_file(self.head_state(), folder / HEAD_FILE, metadata={"format": "pt"})

    def head_state(self) -> dict[str, Tensor]:
        """The weights of the head."""
        state = self.state_dict()
        return {k: v.contiguous() for k, v in state.items() if not k.startswith("network.")}


def start_step_model(
    base: str,
    head: HeadKind,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    three_classes: bool = False,
    sees_states: bool = True,
    extra_layers: int = 0,
    is_taught: bool = False,
    trust_remote_code: bool = False,
    key: str = "base",
) -> StepModel:
    """A step model with a fresh head on a pretrained language model.

    Args:
        base: folder or Hugging Face name of a causal language model.
        head: which head.
        revision: commit or tag of a Hugging Face model.
        dtype: torch dtype of the body.
        three_classes: wrong, neutral and sound, of head=token.
        sees_states: the head sees hidden states, too, of head=likelihood.
        extra_layers: on top of the body, which then is fixed, of head=token.
        is_taught: it has what learns what a teacher expected, of head=token.
        trust_remote_code: run Python code that comes with the base.
        key: of the setting that names the base, for messages.

    Raises:
        EngineError: the base cannot be loaded, or has no token classification.
    """
    of: dict[str, Any] = {
        "revision": revision,
        "dtype": dtype,
        "trust_remote_code": trust_remote_code,
        "key": key,
    }
    if head == "likelihood":
        network = _load(AutoModelForCausalLM, base, **of)
        return LikelihoodHead(network, sees_states=sees_states)
    names = ["wrong", "neutral", "sound"] if three_classes else ["wrong", "sound"]
    extra: list[nn.Module] = []
    if extra_layers:
        language = _load(AutoModelForCausalLM, base, **of)
        network, extra = with_hindsight(language, extra_layers, num_labels=len(names))
    else:
        network = _load(
            AutoModelForTokenClassification,
            base,
            **of,
            num_labels=len(names),
            fresh=("score.", "classifier."),
        )
    for part in network.modules():  # by default a tenth of the head's inputs is dropped
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    network.config.id2label = dict(enumerate(names))
    network.config.label2id = {name: i for i, name in enumerate(names)}
    return TokenHead(network, extra=extra, is_taught=is_taught)


def prepare_step_token(network: PreTrainedModel, step_id: int, vocabulary: int) -> str:
    """Give the step token an embedding that can be trained; what was done, in words.

    A token that its model never saw may have an embedding of zeros, NaN or any size. If it is not
    finite, or its norm is beyond three times or under a third of the median, it becomes the mean
    of the vocabulary's. A token beyond the embedding's rows gets rows.

    Args:
        network: the scorer's, without a head that shares the embedding.
        step_id: of the step token.
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
        known = weight[: min(rows, vocabulary)].float()
        usable = known.isfinite().all(dim=1)
        usable[step_id : step_id + 1] = False
        weight[step_id] = known[usable].mean(0).to(weight.dtype)
    return "set the embedding of the step token to the mean of the vocabulary's"


def load_step_model(
    folder: Path, head: HeadKind, *, dtype: str = "float32", trust_remote_code: bool = False
) -> StepModel:
    """A step model that was saved.

    Args:
        folder: of its files.
        head: which head.
        dtype: torch dtype of the body.
        trust_remote_code: run Python code that comes with it.

    Raises:
        EngineError: it cannot be loaded.
    """
    of: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code, "key": ""}
    if head == "token":
        return TokenHead(_load(AutoModelForTokenClassification, str(folder), **of))
    weights = load_tensors(folder / HEAD_FILE)
    model = LikelihoodHead(
        _load(AutoModelForCausalLM, str(folder), **of), sees_states="hidden.weight" in weights
    )
    wanted = {name: tuple(tensor.shape) for name, tensor in model.head_state().items()}
    if wanted != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
        raise EngineError(
            f"{folder / HEAD_FILE}: holds other weights than this model's head has. Copy the whole "
            "folder again, or train it again"
        )
    model.load_state_dict(weights, strict=False)
    return model


def at_steps(states: Tensor, batch: StepBatch) -> Tensor:
    """Hidden states [batch, seq, width] at the steps' positions [batch, steps, width]."""
    at = batch.positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, at)


def _load(kind: Any, base: str, *, dtype: str, **arguments: Any) -> PreTrainedModel:
    quiet_transformers()
    return load_model(kind, base, dtype=getattr(torch, dtype), **arguments)
