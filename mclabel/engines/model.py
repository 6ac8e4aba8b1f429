"""Base class of the engines that run the model of the setting `policy.model`. It handles the
model's tokenizer, identity and checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from mclabel.engines.base import Engine, PolicyPreview
from mclabel.engines.hub import (
    check_model_source,
    compute_weights_fingerprint,
    fetch_model,
    resolve_model,
    resolve_model_commit,
)
from mclabel.engines.loading import silence_transformers
from mclabel.engines.pretrained import check_weights, count_configured_parameters
from mclabel.engines.text import PolicyText, check_model, find_model_end_ids, read_model_max_context


class ModelEngine(Engine):
    """Base class of engines that run a model in the format of transformers, with its tokenizer."""

    reads_weights: ClassVar[bool] = True
    """True if the engine reads the model's weights; False if it reads only the tokenizer."""
    _text: PolicyText | None = None

    @property
    def model(self) -> str:
        """Folder or Hugging Face name of the model.

        Raises:
            ConfigError: `policy.model` names a bundled model that does not exist.
        """
        return resolve_model(self.policy.model)

    def model_identity(self) -> str:
        """Return the fingerprint of a local folder's files, or the name of a model on the hub.

        A local folder may therefore be moved between runs.
        """
        if Path(check_model_source(self.model)).is_dir():
            return f"weights:{compute_weights_fingerprint(Path(self.model))}"
        return self.policy.model

    def model_commit(self) -> str | None:
        """Return the commit that `policy.revision` names now; None for a folder."""
        return resolve_model_commit(self.model, revision=self.policy.revision)

    def num_parameters(self) -> int | None:
        """Return the number of the model's parameters.

        It is counted in a local folder's files, or computed from a hub model's configuration.

        Return None if the engine does not read the weights. Also return None if the hub model may
        run its own code, because its configuration alone does not determine the number.
        """
        if not self.reads_weights:
            return None
        if Path(self.model).is_dir():
            return sum(check_weights(self.model))
        if self.policy.trust_remote_code:
            return None
        return count_configured_parameters(self.model, revision=self.policy.revision)

    def check_model(self) -> None:
        """Check that the model can be loaded, including the weight files of a local folder."""
        policy = self.policy
        check_model(
            self.model,
            policy.prompt_parts,
            revision=policy.revision,
            trust_remote_code=policy.trust_remote_code,
            weights=self.reads_weights and Path(self.model).is_dir(),
        )

    def preview(self) -> PolicyPreview:
        """Return facts about the policy from the model's configuration and tokenizer."""
        trust = self.policy.trust_remote_code
        folder = self.fetch(weights=False)
        if self.reads_weights and Path(self.model).is_dir():
            check_weights(folder)
        silence_transformers()
        text = self.load_text(folder)
        ends = find_model_end_ids(text, folder, trust_remote_code=trust)
        own = read_model_max_context(folder, trust_remote_code=trust)
        return PolicyPreview(
            tokenizer=text.name,
            prompt=text.prompt_form,
            ends=[text.decode([token_id]) for token_id in sorted(ends)],
            max_context=min(own, self.policy.max_model_len or own),
            max_token_chars=text.max_token_chars,
            prompt_ids=text.prompt_ids,
            mark_control_tokens=text.mark_control_tokens,
        )

    def fetch(self, *, weights: bool = True) -> str:
        """Return the model's folder on this node; download it if it is missing.

        Args:
            weights: True to download the weights; the tokenizer does not need them.
        """
        return fetch_model(
            self.model,
            revision=self.policy.revision,
            weights=weights,
            code=self.policy.trust_remote_code,
        )

    def load_text(self, folder: str) -> PolicyText:
        """Load the model's tokenizer and prompt from its folder, and store them in `text`."""
        self._text = PolicyText.load(
            folder,
            self.policy.prompt_parts,
            trust_remote_code=self.policy.trust_remote_code,
        )
        return self._text

    # The text side of the policy

    @property
    def max_token_chars(self) -> int:
        """Number of characters of the longest token."""
        return self.text.max_token_chars

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Return the rendered prompt of a problem, up to where the solution begins."""
        return self.text.prompt_ids(problem)

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...] | None:
        """Render a chat up to its last question; None if the prompt uses no chat template."""
        return self.text.chat_ids(turns, problem) if self.text.is_chat else None

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text, without adding special tokens."""
        return self.text.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self.text.decode(ids)

    @property
    def text(self) -> PolicyText:
        """Tokenizer and prompt of the policy; available once `load_text` was called."""
        assert self._text is not None, "start() first"
        return self._text
