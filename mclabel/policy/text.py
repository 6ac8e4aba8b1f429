"""The text side of a policy: its tokenizer, its prompt, its end tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mclabel.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ENDS = 2**20  # bytes


class PolicyText:
    """Renders prompts and maps between text and ids, the same way for every engine."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template: str | None, system: str | None
    ) -> None:
        """Args:
        tokenizer: the model's own.
        template: text with `{problem}` in it; None renders the tokenizer's chat template.
        system: system message of the chat, if any.
        """
        if template is None and not tokenizer.chat_template:
            template = "{problem}\n"
        self._tokenizer, self._template, self._system = tokenizer, template, system

    @classmethod
    def load(
        cls, model: str, *, revision: str | None, template: str | None, system: str | None
    ) -> PolicyText:
        """Load a model's tokenizer.

        Raises:
            EngineError: `model` has none.
        """
        from transformers import AutoTokenizer

        model_source(model)
        try:
            tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"policy.model={model!r}: no tokenizer can be loaded: {error}"
            ) from error
        return cls(tokenizer, template=template, system=system)

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        if self._template is not None:
            text = self._template.replace("{problem}", problem)
            encoded = self._tokenizer(text, split_special_tokens=True)["input_ids"]
            return tuple(cast(list[int], encoded))
        messages = [{"role": "user", "content": problem}]
        if self._system:
            messages.insert(0, {"role": "system", "content": self._system})
        rendered = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return tuple(cast(dict[str, list[int]], rendered)["input_ids"])

    def encode(self, text: str) -> tuple[int, ...]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(cast(list[int], encoded["input_ids"]))

    def decode(self, ids: Sequence[int]) -> str:
        return cast(
            str,
            self._tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            ),
        )

    @property
    def step_token(self) -> str | None:
        """The token that the tokenizer reserves for the end of a step, if it does."""
        return cast(str | None, getattr(self._tokenizer, "step_token", None))

    def token_id(self, token: str) -> int | None:
        """Id of a text that is one token of the vocabulary, None if it is not."""
        return self._tokenizer.get_vocab().get(token)

    def add_token(self, token: str) -> None:
        """Add a special token to the vocabulary, if it is not in it."""
        self._tokenizer.add_special_tokens(
            {"additional_special_tokens": [token]}, replace_extra_special_tokens=False
        )

    @property
    def num_tokens(self) -> int:
        """Of the vocabulary, added ones included."""
        return len(self._tokenizer)

    def save(self, folder: Path) -> None:
        """Save the tokenizer beside a model."""
        self._tokenizer.save_pretrained(folder)

    def end_ids(self, *configured: int | Sequence[int] | None) -> frozenset[int]:
        """The tokenizer's end token and those that the model's configurations name."""
        ids: set[int] = set()
        for one in (self._tokenizer.eos_token_id, *configured):
            ids |= set() if one is None else {one} if isinstance(one, int) else set(one)
        return frozenset(ids)


def quiet_transformers() -> None:
    """Turn off loading bars, and reports of what is meant to be so, such as a fresh head."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def require_model(model: str, *, revision: str | None) -> None:
    """Check that a model can be loaded, without loading it: fetch its configuration alone.

    Raises:
        EngineError: there is no such folder, and the hub does not have it or cannot be reached.
    """
    from transformers.utils.hub import cached_file

    model_source(model)
    try:
        cached_file(model, "config.json", revision=revision)
    except (OSError, ValueError) as error:
        raise EngineError(f"policy.model={model!r}: cannot be loaded: {error}") from error


def model_source(model: str) -> str:
    """`model` as transformers takes it, checked where that is possible without a network.

    Raises:
        EngineError: it names a folder that holds no model.
    """
    path = Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        raise EngineError(
            f"policy.model={model!r}: the folder holds no config.json. Give a folder saved by "
            "`save_pretrained`, a Hugging Face name, or `arith:policy`"
        )
    if not path.is_dir() and (path.is_absolute() or model.startswith(".") or model.count("/") > 1):
        raise EngineError(f"policy.model={model!r}: no such folder")
    return model


def weights_fingerprint(folder: Path) -> str:
    """A hash that changes with a model's weights, its configuration or its tokenizer.

    Files up to 16 MiB are hashed whole; of larger ones the size and the first and last MiB, so
    a change confined to the middle of a large file goes unseen. Training changes every tensor.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".bin", ".json", ".model", ".jinja"):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}:".encode())
            with path.open("rb") as file:
                if size <= 16 * ENDS:
                    digest.update(file.read())
                else:
                    digest.update(file.read(ENDS))
                    file.seek(-ENDS, 2)
                    digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]
