"""A language model's own likelihood of a solution, as a scorer beside PRMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mclabel.policy.pretrained import load_model_config
from mclabel.policy.text import PolicyText
from mclabel.prm.encode import StepEncoder
from mclabel.prm.model import start_step_model
from mclabel.prm.reading import LEAST, Reading


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
        """Args:
        model: folder or Hugging Face name of a causal language model.
        template: prompt with `{problem}` in it; None uses the model's chat template.
        system: system message, with a chat template.
        trust_remote_code: run Python code that comes with the model.
        key: of the setting that names the model, for messages.

        Raises:
            EngineError: it cannot be loaded.
        """
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "key": key}
        self.network = start_step_model(model, "likelihood", **of).network.eval()
        """What reads the solutions (`reading`)."""
        limit = load_model_config(model, **of).get_text_config().max_position_embeddings
        text = PolicyText.load(model, revision=None, template=template, system=system, **of)
        self.encoder = StepEncoder(text, step_id=None, max_tokens=limit)

    @staticmethod
    def likelihoods(readings: Sequence[Reading]) -> list[tuple[float, float]]:
        """Sum of the log-probabilities of a solution's tokens, and the least of them, in nats."""
        return [(one.total, one.steps[-1][LEAST]) for one in readings]
