"""A language model's likelihoods of solutions, read once for all scorers that rest on them alone.

A head on a frozen body (`LikelihoodHead` without hidden states) and a model's own likelihood are
functions of the same few numbers a step. Of a PRM, an ORM and their base the body is one, and the
pass through it all the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from mclabel.engines.pretrained import load_model_config
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.heads import (
    NUM_FEATURES,
    LikelihoodHead,
    likelihood_features,
    token_logprobs,
)
from mclabel.prm.model.network import StepModel, load_network
from mclabel.prm.scoring.score import step_scores

SAMPLE = 1 << 18
"""Numbers of a tensor that its fingerprint rests on, of either end."""
LEAST = 2
"""The feature that is the least token of the prefix."""
UNRELATED = ("_name_or_path", "architectures", "transformers_version", "use_cache")
"""Keys of a model's configuration that do not change its likelihoods."""


class Reading(NamedTuple):
    """A language model's likelihoods of one solution, in nats. As JSON, a list of the two."""

    steps: list[list[float]]
    """[steps, 4]: the features of `likelihood_features`."""
    total: float
    """Log-probability of all tokens."""


def read_solutions(
    network: PreTrainedModel,
    encoded: Sequence[EncodedSolution],
    *,
    threads: int | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Reading]:
    """Read every solution; equal ones are computed once.

    Args:
        network: a causal language model.
        encoded: in any order.
        threads: on a CPU; None for one a core.
        on_progress: called with distinct solutions done and in all.
    """

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Reading]:
        states = batch.run(network.base_model, lambda out: out.last_hidden_state)
        logprobs = token_logprobs(states, network.get_output_embeddings(), batch)
        features = likelihood_features(logprobs, batch).tolist()
        totals = logprobs.sum(1).tolist()
        return [
            Reading(steps[: len(solution.positions)], total)
            for solution, steps, total in zip(group, features, totals, strict=True)
        ]

    return map_solutions(
        encoded, compute, network=network, threads=threads, on_progress=on_progress
    )


def read_body(model: StepModel) -> PreTrainedModel | None:
    """The language model whose readings are all that a scorer sees; None if it sees more."""
    if isinstance(model, LikelihoodHead) and model.hidden is None:
        return model.network
    return None


def score_readings(model: StepModel, readings: Sequence[Reading]) -> list[list[float]]:
    """Score readings as `PRM.score_encoded` does, with a head on a body that `read_body` gives."""
    if not readings:
        return []
    device = next(model.parameters()).device
    features = torch.tensor([step for reading in readings for step in reading.steps], device=device)
    with torch.inference_mode():
        logits = model(features.view(1, -1, NUM_FEATURES))[0].float()
    parts = logits.split([len(reading.steps) for reading in readings])
    return [step_scores(model, part) for part in parts]


def body_fingerprint(network: PreTrainedModel) -> str:
    """A hash that is equal for models with the same likelihoods, wherever they were saved.

    Of large tensors only both ends enter; training changes every tensor.
    """
    config = network.config.to_dict()
    settings = sorted((key, str(value)) for key, value in config.items() if key not in UNRELATED)
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        flat = tensor.detach().flatten()
        for part in (flat[:SAMPLE], flat[-SAMPLE:]):
            digest.update(_bytes(part))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()


class LikelihoodScorer:
    """Log-likelihood of whole solutions at temperature 1: the sum, and the least token's."""

    def __init__(
        self,
        model: str,
        *,
        template: str | None,
        system: str | None,
        trust_remote_code: bool = False,
        key: str = "",
    ) -> None:
        """Load a language model.

        Args:
            model: folder or Hugging Face name of a causal language model.
            template: prompt with `{problem}` in it; None uses the model's chat template.
            system: system message, with a chat template.
            trust_remote_code: run Python code that comes with the model.
            key: key of the setting that names the model, for messages.

        Raises:
            EngineError: it cannot be loaded.
        """
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "key": key}
        network = load_network(AutoModelForCausalLM, model, dtype="float32", **of)
        self.network = network.eval()
        """Reads the solutions (`reading`)."""
        limit = load_model_config(model, **of).get_text_config().max_position_embeddings
        text = PolicyText.load(model, revision=None, template=template, system=system, **of)
        self.encoder = StepEncoder(text, step_id=None, max_tokens=limit)

    @staticmethod
    def likelihoods(readings: Sequence[Reading]) -> list[tuple[float, float]]:
        """Sum of the log-probabilities of a solution's tokens, and the least of them, in nats."""
        return [(reading.total, reading.steps[-1][LEAST]) for reading in readings]
