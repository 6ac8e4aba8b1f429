"""A language model's own likelihood of a solution, as a scorer beside PRMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForCausalLM

from mclabel.engines.pretrained import load_model_config
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.encode import StepEncoder
from mclabel.prm.model.network import load_network
from mclabel.prm.scoring.reading import LEAST, Reading


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
            key: of the setting that names the model, for messages.

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
        return [(one.total, one.steps[-1][LEAST]) for one in readings]
