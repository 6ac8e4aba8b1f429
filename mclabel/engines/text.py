"""Handles the tokenizer of a policy: renders prompts, maps text to ids, and finds end tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mclabel.core.errors import EngineError
from mclabel.engines.chat import (
    ChatTemplateError,
    ControlTokens,
    PromptParts,
    build_chat_messages,
    render_chat,
)
from mclabel.engines.hub import POLICY, fetch_model, format_model_with_key
from mclabel.engines.pretrained import (
    check_weights,
    load_generation_config,
    load_model_config,
    load_tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "What is 1 + 1?"
"""Short problem that is rendered to test prompts and servers."""
MIN_TOKEN_CHARS = 64
"""Minimum of `PolicyText.max_token_chars`, in characters. A tokenizer may merge many spaces into
one token, and texts must not be rejected as too long because of that."""
MARK = "mclabel"
"""Text that no chat template contains. It stands for a message in order to find what follows."""
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Roles that a tokenizer may give to a token. Tokens with a role count as used, even the token for
unknown texts, since it often separates documents."""


class PolicyText:
    """Tokenizer and prompt of a policy: renders prompts and maps between text and token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: PromptParts) -> None:
        """Store a model's tokenizer and the parts of its prompt."""
        self._tokenizer, self._prompt = tokenizer, prompt
        self._control = ControlTokens(tokenizer)
        self.is_chat = prompt.template is None and bool(tokenizer.chat_template)

    @classmethod
    def load(
        cls,
        model: str,
        prompt: PromptParts,
        *,
        revision: str | None = None,
        trust_remote_code: bool = False,
        setting_key: str = POLICY,
    ) -> PolicyText:
        """Load a model's tokenizer, and check that a prompt can be rendered.

        Args:
            model: folder or Hugging Face name.
            prompt: parts of the prompt.
            revision: commit or tag of a Hugging Face model.
            trust_remote_code: True to run Python code that comes with the model.
            setting_key: key of the setting that names the model, for messages.

        Raises:
            EngineError: the model has no tokenizer, or its chat template cannot render the prompt.
        """
        tokenizer = load_tokenizer(
            model, revision=revision, trust_remote_code=trust_remote_code, setting_key=setting_key
        )
        text = cls(tokenizer, prompt)
        try:
            text.prompt_ids(PROBE)
        except ChatTemplateError as error:
            section = "policy." if setting_key == POLICY else ""
            raise EngineError(
                f"{format_model_with_key(model, setting_key)}: its chat template cannot render "
                f"the prompt: {error.reason}. Leave out {section}system and few-shot examples, or "
                f"write the prompt as {section}template with {{problem}} in it"
            ) from error
        return text

    @property
    def name(self) -> str:
        """Name of the tokenizer's class."""
        return type(self._tokenizer).__name__

    @cached_property
    def max_token_chars(self) -> int:
        """Upper bound on the characters per token.

        It is at least `MIN_TOKEN_CHARS`, because a tokenizer may merge many spaces into one token.
        """
        return max(MIN_TOKEN_CHARS, *map(len, self._tokenizer.get_vocab()))

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Render and tokenise the prompt of a problem, whose control tokens stay plain text."""
        fenced = self._control.fence_control_tokens(problem)
        if not self.is_chat:
            return tuple(self._control.encode_prompt(self._build_plain_prompt(fenced)))
        return tuple(
            self._control.encode(
                self._render_messages(self.build_messages(fenced), add_generation_prompt=True)
            )
        )

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...]:
        """Tokenise a chat up to the end of its last question, without the start of an answer.

        Args:
            turns: earlier questions and answers, in order.
            problem: the last question.
        """
        fence = self._control.fence_control_tokens
        fenced = [(fence(asked), fence(answered)) for asked, answered in turns]
        rendered = self._render_messages(
            self.build_messages(fence(problem), fenced), add_generation_prompt=False
        )
        end = cast(str, self._tokenizer.eos_token or "")
        rendered = rendered.removesuffix("\n").removesuffix(end) if end else rendered
        return tuple(self._control.encode(rendered))

    def build_messages(
        self, problem: str, earlier: Sequence[tuple[str, str]] = ()
    ) -> list[dict[str, str]]:
        """Return the messages of the prompt, up to the question that the policy has to answer.

        Args:
            problem: the last question.
            earlier: questions and answers between the worked examples and the last question.
        """
        return build_chat_messages(
            problem, system=self._prompt.system, turns=(*self._prompt.few_shot, *earlier)
        )

    def mark_control_tokens(self, ids: Sequence[int]) -> str:
        """Return the text of token ids for display, with ⟦…⟧ around each control token."""
        return self._control.mark_control_tokens(ids, self.decode)

    @property
    def prompt_form(self) -> str:
        """Description of the prompt for display, such as that it uses the chat template."""
        if self.is_chat:
            return "rendered by the model's chat template"
        if self._prompt.template is not None:
            return "rendered by template"
        return "plain text, as the model has no chat template"

    def _render_messages(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool
    ) -> str:
        return render_chat(
            self._tokenizer,
            messages,
            add_generation_prompt=add_generation_prompt,
            variables=self._prompt.variables,
        )

    def _build_plain_prompt(self, problem: str) -> str:
        if self._prompt.template is not None:
            return self._prompt.template.replace("{problem}", problem)
        shown = [self._prompt.system] if self._prompt.system else []
        shown += [f"{problem_text}\n{solution}" for problem_text, solution in self._prompt.few_shot]
        return "\n\n".join([*shown, f"{problem}\n"])

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise a text whose control tokens all count as plain text."""
        return tuple(self._control.encode_plain(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, including special tokens."""
        return cast(
            str,
            self._tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            ),
        )

    @property
    def step_token(self) -> str | None:
        """Token that the tokenizer reserves for the end of a step; None if it reserves none."""
        return cast(str | None, getattr(self._tokenizer, "step_token", None))

    def token_id(self, token: str) -> int | None:
        """Return the id of a token by its text; None if the vocabulary lacks the token."""
        return self._tokenizer.get_vocab().get(token)

    def has_existing_meaning(self, token: int) -> bool:
        """Return whether a token already has a meaning for the model.

        A token has a meaning if the chat template or `template` writes it. It also has a meaning
        if the tokenizer gives it a role, such as to begin, end, separate or pad texts.

        Args:
            token: id of the token.
        """
        return token in self._meaningful_ids or self.decode([token]) in self._template_text

    def is_one_token(self, token: str) -> bool:
        """Return whether a text is a single token of the vocabulary that decodes to this text."""
        identity = self.token_id(token)
        return identity is not None and self.decode([identity]).strip() == token.strip()

    def list_unused_tokens(self, ends: Collection[int] = ()) -> list[str]:
        """Return the special tokens that have no meaning for the model yet; see
        `has_existing_meaning`.

        Args:
            ends: ids of end tokens in the model's configuration, which are not returned.
        """
        return [
            token.content
            for number, token in self._tokenizer.added_tokens_decoder.items()
            if token.special and number not in ends and not self.has_existing_meaning(number)
        ]

    @cached_property
    def _template_text(self) -> str:
        """Source text of the prompt or chat template.

        It may contain tokens that a single rendered prompt lacks, such as those for tools.
        """
        if self._prompt.template is not None or not self.is_chat:
            return self._prompt.template or ""
        return self._tokenizer.get_chat_template()

    @cached_property
    def _meaningful_ids(self) -> frozenset[int]:
        roles = [getattr(self._tokenizer, f"{role}_token_id") for role in _ROLES]
        return frozenset({*self.prompt_ids(PROBE), *self.end_ids(*roles)})

    def add_token(self, token: str) -> None:
        """Add a special token to the vocabulary, unless the vocabulary has it already."""
        self._tokenizer.add_special_tokens(
            {"additional_special_tokens": [token]}, replace_extra_special_tokens=False
        )

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the vocabulary, including added tokens."""
        return len(self._tokenizer)

    def save(self, folder: Path) -> None:
        """Save the tokenizer in the folder of a model."""
        self._tokenizer.save_pretrained(folder)

    def end_ids(self, *configured: int | Sequence[int] | None) -> frozenset[int]:
        """Return the ids of all tokens that end a completion.

        They come from the tokenizer, from the chat template, and from the model's configurations.

        Args:
            configured: end token ids in the model's configurations; None if one has none.
        """
        ids: set[int] = set()
        for end_id in (self._tokenizer.eos_token_id, self._find_turn_end_id(), *configured):
            ids |= set() if end_id is None else {end_id} if isinstance(end_id, int) else set(end_id)
        return frozenset(ids)

    def _find_turn_end_id(self) -> int | None:
        """Return the id of the special token that ends a message; None if there is none.

        A chat template puts this token after the policy's message, and `template` puts it after
        the problem.
        """
        if self._prompt.template is not None:
            ids = self._control.encode(self._prompt.template.rpartition("{problem}")[2])
            return next(filter(self._control.is_special, ids), None)
        if not self.is_chat:
            return None
        messages = [*self.build_messages(PROBE), {"role": "assistant", "content": MARK}]
        rendered = self._render_messages(messages, add_generation_prompt=False)
        after = rendered.rpartition(MARK)[2] if MARK in rendered else ""
        first = next(iter(self._control.encode(after)), None)
        return first if first is not None and self._control.is_special(first) else None


def check_model(
    model: str,
    prompt: PromptParts,
    *,
    revision: str | None = None,
    trust_remote_code: bool,
    weights: bool = True,
    setting_key: str = POLICY,
) -> None:
    """Check that a model can be loaded, without reading its weights.

    The tokenizer, the chat template and the configuration are loaded.

    Args:
        model: folder or Hugging Face name; a missing model is downloaded.
        prompt: parts of the prompt.
        revision: commit or tag of a Hugging Face model.
        trust_remote_code: True to run Python code that comes with the model.
        weights: True to also check the weight files.
        setting_key: key of the setting that names the model, for messages.

    Raises:
        EngineError: the configuration, the tokenizer, the chat template or a weight file is
            missing or damaged.
    """
    folder = fetch_model(
        model, revision=revision, weights=weights, code=trust_remote_code, setting_key=setting_key
    )
    load_model_config(folder, trust_remote_code=trust_remote_code, setting_key=setting_key)
    PolicyText.load(folder, prompt, trust_remote_code=trust_remote_code, setting_key=setting_key)
    if weights:
        check_weights(folder, setting_key=setting_key)


def find_model_end_ids(text: PolicyText, folder: str, *, trust_remote_code: bool) -> frozenset[int]:
    """Return the ids of a model's end tokens from its files, without loading the model."""
    config = load_model_config(folder, trust_remote_code=trust_remote_code)
    configured = [getattr(config.get_text_config(), "eos_token_id", None)]
    if (generation := load_generation_config(folder)) is not None:
        configured.append(generation.eos_token_id)
    return text.end_ids(*configured)


def read_model_max_context(folder: str, *, trust_remote_code: bool) -> float:
    """Return a model's context length in tokens; infinite if its configuration has none."""
    config = load_model_config(folder, trust_remote_code=trust_remote_code)
    return float(getattr(config.get_text_config(), "max_position_embeddings", None) or inf)


def trim_end_token_and_text(
    ids: tuple[int, ...],
    end_ids: Collection[int],
    stop: Sequence[str],
    request_stop: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> tuple[tuple[int, ...], bool]:
    """Return the token ids of a completion without its end token and what follows a stop text.

    So completions of all engines have the same form. The completion must have ended by an end token
    or a stop text. The token that completes a stop text is kept.

    Args:
        ids: token ids in the server's response.
        end_ids: ids of tokens that end every completion.
        stop: texts that end every completion.
        request_stop: texts that end only this completion.
        decode: function that turns token ids into text.

    Returns:
        The ids, and True if the completion ended only because of a text in `request_stop`.
    """
    by_token = bool(ids) and ids[-1] in end_ids
    if by_token:
        ids = ids[:-1]
    while any(text in decode(ids[:-1]) for text in (*stop, *request_stop)):
        ids, by_token = ids[:-1], False
    text = decode(ids)
    at_stop = not by_token and not any(stop_text in text for stop_text in stop)
    return ids, at_stop and any(stop_text in text for stop_text in request_stop)


class StopTextDetector:
    """Detects whether the last token of a completion completes a stop text."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Create a detector.

        Args:
            decode: function that turns token ids into text.
        """
        self._decode = decode
        self._may_end: dict[tuple[str, int], bool] = {}
        """Maps the last character of a stop text and a token id to True if the token may complete
        the text, since it contains this character or an incomplete one."""

    def ends(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Return whether the last token of a completion completed one of the stop texts."""
        return any(self._last_token_completes_text(ids, text) for text in stop)

    def _last_token_completes_text(self, ids: Sequence[int], text: str) -> bool:
        key = text[-1], ids[-1]
        if (may_end := self._may_end.get(key)) is None:
            alone = self._decode(ids[-1:])
            may_end = self._may_end[key] = text[-1] in alone or "\ufffd" in alone
        if not may_end:
            return False
        longest = len(text.encode())
        before = self._decode(ids[-longest - 1 : -1])
        return self._decode(ids[-longest - 1 :]).count(text) > before.count(text)
