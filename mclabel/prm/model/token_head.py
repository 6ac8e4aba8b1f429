"""The head `token`: the standard `AutoModelForTokenClassification`, at each step's token.

Its two classes are Math-Shepherd's (arXiv 2312.08935), its format that of TRL and vLLM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification, PreTrainedModel

from mclabel.core.errors import EngineError
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.model.network import StepModel, at_steps, load_network
from mclabel.prm.model.settings import ModelSettings


class TokenHead(StepModel):
    """A token classification model: class 1 is sound; of three, 0 is wrong, 1 neutral, 2 sound."""

    def __init__(self, network: PreTrainedModel) -> None:
        """Put the head of a token classification model in float32.

        Args:
            network: with its head.
        """
        super().__init__()
        self.network = network
        found = getattr(network, "score", None) or getattr(network, "classifier", None)
        if not isinstance(found, nn.Linear):
            raise EngineError(
                f"{type(network).__name__}: its classification head is not a single linear layer. "
                "Choose another base"
            )
        # In float32 on a body of any type, as vLLM has it: scores rest on differences of logits.
        self.head = [found.float()]  # in a list, or its weights would be registered twice

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
        known = {id(p) for p in body}
        return body, [p for p in self.parameters() if id(p) not in known]

    def head_modules(self) -> list[nn.Module]:
        """The linear layer of the classes, and that of the concentration if there is one."""
        return [*self.head, *self.concentration_modules()]

    def save(self, folder: Path) -> None:
        """Save a checkpoint of transformers, which every server loads."""
        self.network.save_pretrained(folder)
        self.save_concentration(folder)


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
