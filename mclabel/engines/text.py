"""The text side of a policy: its tokenizer, its prompt, its end tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from mclabel.core.errors import EngineError
from mclabel.engines.chat import (
    ChatTemplateError,
    ControlTokens,
    Variable,
    chat_messages,
    render_chat,
)
from mclabel.engines.hub import POLICY, fetch_model, named
from mclabel.engines.pretrained import (
    check_weights,
    load_generation_config,
    load_model_config,
    load_tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "What is 1 + 1?"
MIN_TOKEN_CHARS = 64
"""Characters allowed for the longest token of any tokenizer, when only a text's length is
checked."""
MARK = "mclabel"  # a text that no chat template writes by itself
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Roles that any tokenizer may give a token; what an unknown text becomes often parts documents."""


class PolicyText:
    """Renders prompts and maps between text and ids, the same way for every engine."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: str | None,
        system: str | None,
        few_shot: Sequence[tuple[str, str]] = (),
        variables: Mapping[str, Variable] = MappingProxyType({}),
    ) -> None:
        """Hold a tokenizer and what surrounds a problem in its prompt.

        Args:
            tokenizer: the model's own.
            template: text with `{problem}` in it, whose control tokens are tokens; None renders
                the tokenizer's chat template.
            system: system message of the chat, if any.
            few_shot: worked examples (problem, solution) that come before the problem.
            variables: variables that the chat template may read.
        """
        self._tokenizer, self._template = tokenizer, template
        self._control = ControlTokens(tokenizer)
        self.is_chat = template is None and bool(tokenizer.chat_template)
        self._system, self._few_shot = system, tuple(few_shot)
        self._variables = variables

    @classmethod
    def load(
        cls,
        model: str,
        *,
        revision: str | None,
        template: str | None,
        system: str | None,
        few_shot: Sequence[tuple[str, str]] = (),
        variables: Mapping[str, Variable] = MappingProxyType({}),
        trust_remote_code: bool = False,
        key: str = POLICY,
    ) -> PolicyText:
        """Load a model's tokenizer.

        Args:
            model: folder or Hugging Face name.
            revision: commit or tag of a Hugging Face model.
            template: see the class.
            system: see the class.
            few_shot: see the class.
            variables: see the class.
            trust_remote_code: run Python code that comes with the model.
            key: key of the setting that names the model, for messages.

        Raises:
            EngineError: `model` has none, or its chat template cannot render the prompt.
        """
        tokenizer = load_tokenizer(
            model, revision=revision, trust_remote_code=trust_remote_code, key=key
        )
        text = cls(
            tokenizer,
            template=template,
            system=system,
            few_shot=few_shot,
            variables=variables,
        )
        try:
            text.prompt_ids(PROBE)
        except ChatTemplateError as error:
            section = "policy." if key == POLICY else ""
            raise EngineError(
                f"{named(model, key)}: its chat template cannot render the prompt: {error.reason}. "
                f"Leave out {section}system and few-shot examples, or write the prompt as "
                f"{section}template with {{problem}} in it"
            ) from error
        return text

    @property
    def name(self) -> str:
        """Class name of the tokenizer."""
        return type(self._tokenizer).__name__

    @cached_property
    def max_token_chars(self) -> int:
        """Characters of the longest token, generously: a tokenizer may join spaces."""
        return max(MIN_TOKEN_CHARS, *map(len, self._tokenizer.get_vocab()))

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Tokenise the whole prompt of a problem; its text is read without control tokens."""
        fenced = self._control.fence(problem)
        if not self.is_chat:
            return tuple(self._control.encode_prompt(self._plain(fenced)))
        return tuple(self._control.encode(self._rendered(self.messages(fenced), ask=True)))

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...]:
        """Tokenise a chat that stops behind its last question, without the mark of an answer.

        Args:
            turns: earlier questions and answers, in order.
            problem: the question to ask now.
        """
        fence = self._control.fence
        fenced = [(fence(asked), fence(answered)) for asked, answered in turns]
        rendered = self._rendered(self.messages(fence(problem), fenced), ask=False)
        end = cast(str, self._tokenizer.eos_token or "")
        rendered = rendered.removesuffix("\n").removesuffix(end) if end else rendered
        return tuple(self._control.encode(rendered))

    def messages(
        self, problem: str, earlier: Sequence[tuple[str, str]] = ()
    ) -> list[dict[str, str]]:
        """Return the prompt as a chat, up to the message that the policy is to write."""
        return chat_messages(problem, system=self._system, turns=(*self._few_shot, *earlier))

    def marked(self, ids: Sequence[int]) -> str:
        """Return the text of ids for a reader, with ⟦…⟧ around each control token."""
        return self._control.marked(ids, self.decode)

    @property
    def form(self) -> str:
        """In a few words, how a problem becomes a prompt."""
        if self.is_chat:
            return "rendered by the model's chat template"
        if self._template is not None:
            return "rendered by template"
        return "plain text, as the model has no chat template"

    def _rendered(self, messages: Sequence[Mapping[str, str]], *, ask: bool) -> str:
        return render_chat(self._tokenizer, messages, ask=ask, variables=self._variables)

    def _plain(self, problem: str) -> str:
        if self._template is not None:
            return self._template.replace("{problem}", problem)
        shown = [self._system] if self._system else []
        shown += [f"{problem_text}\n{solution}" for problem_text, solution in self._few_shot]
        return "\n\n".join([*shown, f"{problem}\n"])

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise a text without reading control tokens."""
        return tuple(self._control.encode_plain(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
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
        """Return the id of a text that is one token of the vocabulary, None if it is not."""
        return self._tokenizer.get_vocab().get(token)

    def reads(self, token: int) -> bool:
        """Return whether a token has a meaning for the model already: it is written by the chat
        template or by `template`, or the tokenizer has a role for it, such as to begin, end,
        separate or fill up texts.
        """
        return token in self._read_ids or self.decode([token]) in self._template_text

    def is_one_token(self, token: str) -> bool:
        """Return whether a text is one token of the vocabulary which means this text."""
        identity = self.token_id(token)
        return identity is not None and self.decode([identity]).strip() == token.strip()

    def unused_tokens(self, ends: Collection[int] = ()) -> list[str]:
        """Return the special tokens without a meaning yet, as far as `reads` can see.

        Args:
            ends: ids that the model's configuration names, which have one, too.
        """
        return [
            token.content
            for number, token in self._tokenizer.added_tokens_decoder.items()
            if token.special and number not in ends and not self.reads(number)
        ]

    @cached_property
    def _template_text(self) -> str:
        """The program of the prompt, which may write more than one prompt shows, such as tools."""
        if self._template is not None or not self.is_chat:
            return self._template or ""
        return self._tokenizer.get_chat_template()

    @cached_property
    def _read_ids(self) -> frozenset[int]:
        roles = [getattr(self._tokenizer, f"{role}_token_id") for role in _ROLES]
        return frozenset({*self.prompt_ids(PROBE), *self.end_ids(*roles)})

    def add_token(self, token: str) -> None:
        """Add a special token to the vocabulary, if it is not in it."""
        self._tokenizer.add_special_tokens(
            {"additional_special_tokens": [token]}, replace_extra_special_tokens=False
        )

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the vocabulary, added ones included."""
        return len(self._tokenizer)

    def save(self, folder: Path) -> None:
        """Save the tokenizer beside a model."""
        self._tokenizer.save_pretrained(folder)

    def end_ids(self, *configured: int | Sequence[int] | None) -> frozenset[int]:
        """The end tokens: the tokenizer's, the chat's, and those of the model's configurations."""
        ids: set[int] = set()
        for end_id in (self._tokenizer.eos_token_id, self._turn_end(), *configured):
            ids |= set() if end_id is None else {end_id} if isinstance(end_id, int) else set(end_id)
        return frozenset(ids)

    def _turn_end(self) -> int | None:
        """The special token that ends a message, if any: that which the chat template puts after
        what the policy wrote, or a written template after the problem.
        """
        if self._template is not None:
            ids = self._control.encode(self._template.rpartition("{problem}")[2])
            return next(filter(self._control.is_special, ids), None)
        if not self.is_chat:
            return None
        messages = [*self.messages(PROBE), {"role": "assistant", "content": MARK}]
        rendered = self._rendered(messages, ask=False)
        after = rendered.rpartition(MARK)[2] if MARK in rendered else ""
        first = next(iter(self._control.encode(after)), None)
        return first if first is not None and self._control.is_special(first) else None


def check_model(
    model: str,
    *,
    revision: str | None = None,
    template: str | None,
    system: str | None,
    few_shot: Sequence[tuple[str, str]] = (),
    variables: Mapping[str, Variable] = MappingProxyType({}),
    trust_remote_code: bool,
    weights: bool = True,
    key: str = POLICY,
) -> None:
    """See that a model can be loaded, without reading its weights.

    Args:
        model: folder or Hugging Face name; downloaded if it is not there.
        revision: commit or tag of a Hugging Face model.
        template: see `PolicyText`.
        system: see `PolicyText`.
        few_shot: see `PolicyText`.
        variables: see `PolicyText`.
        trust_remote_code: run Python code that comes with the model.
        weights: look at its files of weights, too.
        key: key of the setting that names the model, for messages.

    Raises:
        EngineError: its configuration, tokenizer, chat template or files of weights are no good.
    """
    folder = fetch_model(model, revision=revision, weights=weights, code=trust_remote_code, key=key)
    load_model_config(folder, trust_remote_code=trust_remote_code, key=key)
    PolicyText.load(
        folder,
        revision=None,
        template=template,
        system=system,
        few_shot=few_shot,
        variables=variables,
        trust_remote_code=trust_remote_code,
        key=key,
    )
    if weights:
        check_weights(folder, key=key)


def model_end_ids(text: PolicyText, folder: str, *, trust_remote_code: bool) -> frozenset[int]:
    """Return the end tokens of a model that is not loaded in this process."""
    config = load_model_config(folder, trust_remote_code=trust_remote_code)
    configured = [getattr(config.get_text_config(), "eos_token_id", None)]
    if (generation := load_generation_config(folder)) is not None:
        configured.append(generation.eos_token_id)
    return text.end_ids(*configured)


def model_max_context(folder: str, *, trust_remote_code: bool) -> float:
    """Return a model's context length in tokens, infinite if its configuration has none."""
    config = load_model_config(folder, trust_remote_code=trust_remote_code)
    return float(getattr(config.get_text_config(), "max_position_embeddings", None) or inf)


def ended_ids(
    ids: tuple[int, ...],
    end_ids: Collection[int],
    stop: Sequence[str],
    own_stop: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> tuple[tuple[int, ...], bool]:
    """Return the ids of a completion that ended by itself, as every engine gives them.

    An end token is left out. The token that completes a stop text is kept, and none after it.

    Args:
        ids: token ids in the server's response.
        end_ids: tokens that end every completion.
        stop: texts that end every completion.
        own_stop: texts that end this one.
        decode: token ids to text.

    Returns:
        The ids, and whether a text of `own_stop` alone has ended them.
    """
    by_token = bool(ids) and ids[-1] in end_ids
    if by_token:
        ids = ids[:-1]
    while any(text in decode(ids[:-1]) for text in (*stop, *own_stop)):
        ids, by_token = ids[:-1], False
    text = decode(ids)
    at_stop = not by_token and not any(stop_text in text for stop_text in stop)
    return ids, at_stop and any(stop_text in text for stop_text in own_stop)


class StopTexts:
    """Sees whether a text is completed by the last of a completion's ids."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Know no text yet.

        Args:
            decode: token ids to text.
        """
        self._decode = decode
        self._may_end: dict[tuple[str, int], bool] = {}
        """True if a token has the last character of a text, or is part of a character."""

    def ends(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Return whether the last token completed one of the stop texts."""
        return any(self._completes(ids, text) for text in stop)

    def ids_with(self, character: str, *, num_ids: int) -> list[int]:
        """Return all tokens below `num_ids` whose text has a character."""
        return [token_id for token_id in range(num_ids) if character in self._decode([token_id])]

    def _completes(self, ids: Sequence[int], text: str) -> bool:
        key = text[-1], ids[-1]
        if (may_end := self._may_end.get(key)) is None:
            alone = self._decode(ids[-1:])
            may_end = self._may_end[key] = text[-1] in alone or "\ufffd" in alone
        if not may_end:
            return False
        longest = len(text.encode())
        before = self._decode(ids[-longest - 1 : -1])
        after = self._decode(ids[-longest - 1 :])
        return after.count(text) > before.count(text)
