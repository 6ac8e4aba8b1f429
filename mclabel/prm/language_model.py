"""A language model's own likelihood of a solution, as a scorer beside PRMs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import AutoConfig

from mclabel.policy.text import PolicyText
from mclabel.prm.batch import StepBatch, map_solutions
from mclabel.prm.encode import EncodedSolution, StepEncoder
from mclabel.prm.likelihood import likelihood_features, token_logprobs
from mclabel.prm.model import LikelihoodHead, start_step_model


class LikelihoodScorer:
    """Log-likelihood of whole solutions at temperature 1: the sum, and the least token's."""

    def __init__(
        self,
        model: str,
        *,
        template: str | None,
        system: str | None,
        threads: int | None = None,
    ) -> None:
        """Args:
        model: folder or Hugging Face name of a causal language model.
        template: prompt with `{problem}` in it; None uses the model's chat template.
        system: system message, with a chat template.
        threads: None for one a core.

        Raises:
            EngineError: it cannot be loaded.
        """
        network = start_step_model(model, "likelihood")
        assert isinstance(network, LikelihoodHead)
        self._network = network.network.eval()
        self._threads = threads
        limit = AutoConfig.from_pretrained(model).get_text_config().max_position_embeddings
        text = PolicyText.load(model, revision=None, template=template, system=system)
        self.encoder = StepEncoder(text, step_id=None, max_tokens=limit)

    def score_encoded(
        self,
        encoded: Sequence[EncodedSolution],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[tuple[float, float]]:
        """Sum of the log-probabilities of a solution's tokens, and the least of them, in nats."""

        def compute(
            batch: StepBatch, group: Sequence[EncodedSolution]
        ) -> list[tuple[float, float]]:
            states = batch.run(self._network.base_model, lambda out: out.last_hidden_state)
            logprobs = token_logprobs(states, self._network.get_output_embeddings(), batch)
            least = likelihood_features(logprobs, batch)[..., 2].amin(1)
            return list(zip(logprobs.sum(1).tolist(), least.tolist(), strict=True))

        return map_solutions(
            encoded,
            compute,
            network=self._network,
            threads=self._threads,
            on_progress=on_progress,
        )
