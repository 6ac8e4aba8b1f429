"""Likelihoods of solutions under a language model, computed once for several scorers.

The likelihoods of a solution are a few numbers per step. The scores of a `LikelihoodHead` without
hidden states are functions of these numbers, as is the model's own likelihood of the solution. A
PRM, an ORM and their frozen base share one body (the network without a head), and the forward
pass through it dominates the cost. So the pass is made only once for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from mclabel.engines.chat import PromptParts
from mclabel.engines.pretrained import load_model_config
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.heads import (
    NUM_FEATURES,
    LikelihoodHead,
    compute_likelihood_features,
    compute_token_logprobs,
)
from mclabel.prm.model.network import StepModel, load_network
from mclabel.prm.scoring.score import compute_step_scores

SAMPLE = 1 << 18
"""Number of elements at each end of a tensor that enter the hash of a model."""
LEAST = 2
"""0-based index of the likelihood feature with the lowest log-probability up to the step's end."""
UNRELATED = ("_name_or_path", "architectures", "transformers_version", "use_cache")
"""Keys of a model's configuration that do not change its likelihoods."""


class SolutionLikelihoods(NamedTuple):
    """A language model's likelihoods of one solution, in nats. JSON stores the fields as a list."""

    steps: list[list[float]]
    """Features of the steps [steps, 4], from `compute_likelihood_features`."""
    total: float
    """Sum of the log-probabilities of all tokens of the solution."""


def compute_solution_likelihoods(
    network: PreTrainedModel,
    encoded: Sequence[EncodedSolution],
    *,
    threads: int | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[SolutionLikelihoods]:
    """Compute the likelihoods of solutions. Equal solutions are computed once.

    Args:
        network: a causal language model.
        encoded: encoded solutions, in any order.
        threads: number of threads on a CPU; None uses one thread per core.
        on_progress: called with the number of finished and of all distinct solutions.
    """

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[SolutionLikelihoods]:
        states = batch.run(network.base_model, lambda out: out.last_hidden_state)
        logprobs = compute_token_logprobs(states, network.get_output_embeddings(), batch)
        features = compute_likelihood_features(logprobs, batch.positions).tolist()
        totals = logprobs.sum(1).tolist()
        return [
            SolutionLikelihoods(steps[: len(solution.positions)], total)
            for solution, steps, total in zip(group, features, totals, strict=True)
        ]

    return map_solutions(
        encoded, compute, network=network, threads=threads, on_progress=on_progress
    )


def get_likelihood_only_network(model: StepModel) -> PreTrainedModel | None:
    """Return a scorer's language model if its likelihoods alone determine the scores, else None."""
    return model.network if isinstance(model, LikelihoodHead) and model.hidden is None else None


def score_likelihoods(
    model: StepModel, likelihoods: Sequence[SolutionLikelihoods]
) -> list[list[float]]:
    """Return the scores of the steps of solutions, computed from their likelihoods.

    Args:
        model: step model for which `get_likelihood_only_network` returns a language model.
        likelihoods: likelihoods of the solutions by that language model.
    """
    if not likelihoods:
        return []
    features = torch.tensor(
        [step for solution in likelihoods for step in solution.steps],
        device=next(model.parameters()).device,
    )
    with torch.inference_mode():
        logits = model(features.view(1, -1, NUM_FEATURES))[0].float()
    parts = logits.split([len(solution.steps) for solution in likelihoods])
    return [compute_step_scores(model, part) for part in parts]


def compute_body_fingerprint(network: PreTrainedModel) -> str:
    """Return a hash that is equal for copies of the same model in different folders.

    Of a large tensor, only the first and last bytes are hashed. This suffices, because training
    changes every tensor.
    """
    config = network.config.to_dict()
    settings = sorted((key, str(value)) for key, value in config.items() if key not in UNRELATED)
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        flat = tensor.detach().flatten()
        for part in (flat[:SAMPLE], flat[-SAMPLE:]):
            digest.update(part.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


class LikelihoodScorer:
    """Scores solutions by a language model's log-probabilities at temperature 1."""

    def __init__(
        self,
        model: str,
        *,
        template: str | None,
        system: str | None,
        trust_remote_code: bool = False,
        setting_key: str = "",
    ) -> None:
        """Load a language model.

        Args:
            model: folder or Hugging Face name of a causal language model.
            template: prompt template that contains `{problem}`; None uses the model's chat
                template.
            system: system message in the chat template; None omits it.
            trust_remote_code: true if Python code that comes with the model may run.
            setting_key: key of the setting that names the model, for error messages.

        Raises:
            EngineError: the model cannot be loaded.
        """
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "setting_key": setting_key}
        self.network = load_network(AutoModelForCausalLM, model, dtype="float32", **of).eval()
        """Language model to pass to `compute_solution_likelihoods`."""
        limit = load_model_config(model, **of).get_text_config().max_position_embeddings
        text = PolicyText.load(model, PromptParts(template=template, system=system), **of)
        self.encoder = StepEncoder(text, step_id=None, max_tokens=limit)

    @staticmethod
    def extract_total_and_minimum(
        likelihoods: Sequence[SolutionLikelihoods],
    ) -> list[tuple[float, float]]:
        """Return the sum and the minimum of each solution's token log-probabilities, in nats."""
        return [(solution.total, solution.steps[-1][LEAST]) for solution in likelihoods]
