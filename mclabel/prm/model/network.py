"""A step model: a language model's body, with a head that gives a log-odds for every step; how it
is made, adapted and saved.

Low-rank adapters (LoRA, arXiv 2106.09685, by `peft`) are trained in place of the body's own weights
and merged into them in the end, so a finished PRM is a plain checkpoint that needs no `peft`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from mclabel.core.errors import EngineError
from mclabel.engines.loading import quiet_transformers
from mclabel.engines.pretrained import load_model, load_tensors
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.model.settings import CONCENTRATION_FILE, HEADS, ModelSettings

_MIDDLE, _REACH = 2.0, 6.0
"""log c lies within _REACH of _MIDDLE: c from 0.018, all right or all wrong, to 2,981, a share that
is known exactly. A fresh head gives the middle, 7.4."""


class StepModel(nn.Module, ABC):
    """A network that gives a log-odds for every step."""

    network: PreTrainedModel

    def __init__(self) -> None:
        """Without a concentration; see `add_concentration`."""
        super().__init__()
        self.concentration: nn.Linear | None = None

    @classmethod
    @abstractmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """A model with a fresh head on a pretrained base; see `start_step_model`."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """A model that was saved; see `load_step_model`."""

    def forward(self, batch: StepBatch | Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], or of three classes [batch, steps, 3].

        With a concentration: log-odds of the mean, and log-concentration [batch, steps, 2].

        Args:
            batch: solutions, or what `observe` gave for them.
        """
        observed = batch if isinstance(batch, Tensor) else self.observe(batch)
        logits = self.apply_head(observed)
        if self.concentration is None:
            return logits
        with torch.autocast(observed.device.type, enabled=False):
            free = self.concentration(observed.float())[..., 0]
        return torch.stack([logits.float(), _MIDDLE + _REACH * (free / _REACH).tanh()], dim=-1)

    @staticmethod
    def log_odds(logits: Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], from what `forward` gives."""
        if logits.dim() == 2:
            return logits
        return logits[..., 0] if logits.shape[-1] == 2 else three_class_log_odds(logits)

    def add_concentration(self) -> None:
        """Learn how sure the mean is, too: a linear layer beside the head, which stays as it is.

        The mean remains a score like any other model's: whoever knows nothing of the concentration
        loads, serves and scores with the head alone.
        """
        self.concentration = nn.Linear(self.observed_width, 1)
        for weight in self.concentration.parameters():
            nn.init.zeros_(weight)

    def concentration_modules(self) -> list[nn.Module]:
        """The layer of the concentration, or none."""
        return [] if self.concentration is None else [self.concentration]

    def save_concentration(self, folder: Path) -> None:
        """Save it, if there is one, in `CONCENTRATION_FILE`."""
        if self.concentration is None:
            return
        (folder / CONCENTRATION_FILE).parent.mkdir(exist_ok=True)
        state = {k: v.contiguous() for k, v in self.concentration.state_dict().items()}
        save_file(state, folder / CONCENTRATION_FILE, metadata={"format": "pt"})

    def load_concentration(self, folder: Path) -> None:
        """Load what `save_concentration` has written.

        Raises:
            EngineError: it is missing or damaged, or does not fit this model.
        """
        self.add_concentration()
        assert self.concentration is not None
        found = load_tensors(folder / CONCENTRATION_FILE)
        wanted = self.concentration.state_dict()
        if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in wanted.items()}:
            raise EngineError(
                f"{folder / CONCENTRATION_FILE}: holds weights that do not fit this model. Copy "
                "the whole folder again, or train the model again"
            )
        self.concentration.load_state_dict(found)

    @property
    @abstractmethod
    def observed_width(self) -> int:
        """How many numbers `observe` gives for a step."""

    @abstractmethod
    def observe(self, batch: StepBatch) -> Tensor:
        """What the body gives for each step [batch, steps, width], all that the head needs."""

    @abstractmethod
    def apply_head(self, observed: Tensor) -> Tensor:
        """The result of `forward`, from that of `observe`."""

    @abstractmethod
    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters of the body, and those of the head."""

    @abstractmethod
    def head_modules(self) -> list[nn.Module]:
        """The layers of the head."""

    @property
    def has_adapters(self) -> bool:
        """Whether adapters are trained in place of the body's own weights."""
        return any(is_adapter(name) for name, _ in self.named_parameters())

    def freeze(self, *, body: bool) -> None:
        """Fix the weights that are not trained.

        Args:
            body: fix the whole body; else, in a body with adapters, all but these.
        """
        adapted = self.has_adapters
        inside = {id(parameter) for parameter in self.parts()[0]}
        for name, parameter in self.named_parameters():
            if id(parameter) in inside:
                parameter.requires_grad_(not body and (is_adapter(name) or not adapted))

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that are not fixed."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save for `load_step_model`. Adapters must have been merged."""


def three_class_log_odds(logits: Tensor) -> Tensor:
    """Log-odds [...] that a step is not wrong, from [..., 3]: neutral counts as sound.

    As in Let's Verify Step by Step (arXiv 2305.20050, appendix F).
    """
    return torch.logsumexp(logits[..., 1:], dim=-1) - logits[..., 0]


def at_steps(states: Tensor, batch: StepBatch) -> Tensor:
    """Hidden states [batch, seq, width] at the steps' positions [batch, steps, width]."""
    at = batch.positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, at)


def load_network(kind: Any, base: str, *, dtype: str, **arguments: Any) -> PreTrainedModel:
    """A network of transformers, without its warnings about a fresh head.

    Args:
        kind: class that loads it.
        base: folder or Hugging Face name.
        dtype: name of a torch dtype.
        **arguments: of `load_model`.
    """
    quiet_transformers()
    return load_model(kind, base, dtype=getattr(torch, dtype), **arguments)


_MARK = "lora_"


def is_adapter(parameter_name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return _MARK in parameter_name


def add_adapters(network: PreTrainedModel, *, rank: int, alpha: int) -> None:
    """Put adapters into every linear layer of the body, in place; they change nothing at first.

    Args:
        network: with its head; the head gets none.
        rank: of the adapters.
        alpha: their output is scaled by alpha / rank.
    """
    from peft import LoraConfig, inject_adapter_in_model

    body = cast(nn.Module, getattr(network, network.base_model_prefix))
    linear = [name for name, part in body.named_modules() if isinstance(part, nn.Linear)]
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=linear, lora_dropout=0.0)
    inject_adapter_in_model(config, body)  # fixes all else in the body
    for name, parameter in body.named_parameters():
        if is_adapter(name):  # bfloat16 would round small changes of them away
            parameter.data = parameter.data.float()


def merge_adapters(network: nn.Module) -> None:
    """Add the adapters to the weights that they adapt, and remove them, in place."""
    for name, part in list(network.named_modules()):
        if not hasattr(part, "get_base_layer") or not hasattr(part, "merge"):
            continue
        layer = cast(Any, part)
        layer.merge()
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, layer.get_base_layer())


def start_step_model(
    settings: ModelSettings,
    *,
    has_neutral: bool = False,
    has_concentration: bool = False,
    trains_body: bool = True,
    device: str = "cpu",
    key: str = "base",
) -> StepModel:
    """A step model with a fresh head on a pretrained language model.

    Args:
        settings: of the network; `base` is a folder or a Hugging Face name.
        has_neutral: its classes are wrong, neutral and sound; of a classifier of tokens.
        has_concentration: it gives a mean and how sure that is, in place of a mean alone.
        trains_body: the body will be trained, so that its states are worth seeing.
        device: torch device that it will be trained on.
        key: of the setting that names the base, for messages.

    Raises:
        EngineError: the base cannot be loaded, or has no token classification.
    """
    dtype = settings.weights_dtype(
        device, trains_weights=trains_body and settings.lora_rank is None
    )
    kind = _step_model(settings.head)
    settings = settings.model_copy(update={"dtype": dtype})
    model = kind.start(settings, key=key, has_neutral=has_neutral, trains_body=trains_body)
    if has_concentration:
        model.add_concentration()
    return model


def load_step_model(
    folder: Path,
    head: str,
    *,
    has_concentration: bool = False,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> StepModel:
    """A step model that was saved.

    Args:
        folder: of its files.
        head: name of its head, in `HEADS`.
        has_concentration: it was saved with a concentration.
        dtype: torch dtype of the body.
        trust_remote_code: run Python code that comes with it.

    Raises:
        EngineError: it cannot be loaded.
    """
    model = _step_model(head).load(folder, dtype=dtype, trust_remote_code=trust_remote_code)
    if has_concentration:
        model.load_concentration(folder)
    return model


def _step_model(head: str) -> type[StepModel]:
    module, _, name = HEADS[head].model.partition(":")
    return cast(type[StepModel], getattr(import_module(module), name))
