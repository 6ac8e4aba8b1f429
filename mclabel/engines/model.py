"""Base of the engines that run `policy.model`: its tokenizer, its identity, its checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from mclabel.engines.base import Engine, PolicyPreview
from mclabel.engines.hub import (
    fetch_model,
    model_source,
    pin_model,
    resolve_model,
    weights_fingerprint,
)
from mclabel.engines.loading import quiet_transformers
from mclabel.engines.pretrained import check_weights, configured_parameters
from mclabel.engines.text import PolicyText, check_model, model_end_ids, model_max_context


class ModelEngine(Engine):
    """Base of engines that run a model of transformers' format, with its tokenizer."""

    reads_weights: ClassVar[bool] = True
    """True if the engine reads the model's weights, and not its tokenizer alone."""
    _text: PolicyText | None = None

    @property
    def model(self) -> str:
        """Folder or Hugging Face name of the model.

        Raises:
            ConfigError: there is no such bundled model.
        """
        return resolve_model(self.policy.model)

    def model_identity(self) -> str:
        """Return a fingerprint of a local folder, so that it may move; else the model's name."""
        if Path(model_source(self.model)).is_dir():
            return f"weights:{weights_fingerprint(Path(self.model))}"
        return self.policy.model

    def model_commit(self) -> str | None:
        """Return the commit that `policy.revision` names now; None for a folder."""
        return pin_model(self.model, revision=self.policy.revision)

    def num_parameters(self) -> int | None:
        """Count the parameters in a folder's files, or those in a hub model's configuration.

        None where the weights are elsewhere, or only code of the model's own can tell.
        """
        if not self.reads_weights:
            return None
        if Path(self.model).is_dir():
            return sum(check_weights(self.model))
        if self.policy.trust_remote_code:
            return None
        return configured_parameters(self.model, revision=self.policy.revision)

    def check_model(self) -> None:
        """See that the model can be loaded; a folder's weights are looked at, too."""
        policy = self.policy
        check_model(
            self.model,
            revision=policy.revision,
            template=policy.template,
            system=policy.system,
            few_shot=policy.examples,
            variables=policy.template_variables,
            trust_remote_code=policy.trust_remote_code,
            weights=self.reads_weights and Path(self.model).is_dir(),
        )

    def preview(self) -> PolicyPreview:
        """Return what the model's configuration and tokenizer show."""
        trust = self.policy.trust_remote_code
        folder = self.fetch(weights=False)
        if self.reads_weights and Path(self.model).is_dir():
            check_weights(folder)
        quiet_transformers()
        text = self.load_text(folder)
        ends = model_end_ids(text, folder, trust_remote_code=trust)
        own = model_max_context(folder, trust_remote_code=trust)
        return PolicyPreview(
            tokenizer=text.name,
            prompt=text.form,
            ends=[text.decode([token_id]) for token_id in sorted(ends)],
            max_context=min(own, self.policy.max_model_len or own),
            max_token_chars=text.max_token_chars,
            prompt_ids=text.prompt_ids,
            marked=text.marked,
        )

    def fetch(self, *, weights: bool = True) -> str:
        """Return the model's folder on this node; download it if it is missing.

        Args:
            weights: False is enough for a tokenizer.
        """
        return fetch_model(
            self.model,
            revision=self.policy.revision,
            weights=weights,
            code=self.policy.trust_remote_code,
        )

    def load_text(self, folder: str) -> PolicyText:
        """Load the model's tokenizer and prompt from its folder, and keep them as `text`."""
        self._text = PolicyText.load(
            folder,
            revision=None,
            template=self.policy.template,
            system=self.policy.system,
            few_shot=self.policy.examples,
            variables=self.policy.template_variables,
            trust_remote_code=self.policy.trust_remote_code,
        )
        return self._text

    # The text side of the policy

    @property
    def max_token_chars(self) -> int:
        """Characters of the longest token."""
        return self.text.max_token_chars

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Return the rendered prompt of a problem, up to where the solution begins."""
        return self.text.prompt_ids(problem)

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...] | None:
        """Render a chat up to its last question; None where no chat template renders it."""
        return self.text.chat_ids(turns, problem) if self.text.is_chat else None

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text, without special tokens."""
        return self.text.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self.text.decode(ids)

    @property
    def text(self) -> PolicyText:
        """The tokenizer, once it is loaded."""
        assert self._text is not None, "start() first"
        return self._text
