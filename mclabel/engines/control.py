"""Control tokens: those of a prompt's template are tokens, those in a problem's text stay text.

A problem that holds `<|im_end|>` would otherwise end its own message and write the next one. Its
control tokens are fenced before the prompt is rendered, and the fenced ones are tokenised as any
text. A prompt in which nothing is fenced is tokenised in one piece, as transformers does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode, which are no text. Those of a text itself are left as they are."""


class ControlTokens:
    """Special tokens of one tokenizer, in texts and among ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Read which tokens of the vocabulary are special."""
        self._tokenizer = tokenizer

    def fence(self, text: str) -> str:
        """A text whose control tokens `encode` keeps as text, whatever stands around it."""
        return self._any.sub(rf"{_OPEN}\g<0>{_CLOSE}", text) if self._special else text

    def encode(self, rendered: str) -> list[int]:
        """Ids of a rendered prompt: control tokens are tokens unless they are fenced.

        Nothing is added to it. A tokenizer that puts a space before every text puts one at each
        end of a fenced token, too.
        """
        pieces = self._fenced.split(rendered) if self._special else [rendered]
        return [
            one
            for number, piece in enumerate(pieces)
            if piece
            for one in self._ids(piece, as_text=number % 2 == 1)
        ]

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text in which no control token is one."""
        return self._ids(text, as_text=True)

    def encode_prompt(self, prompt: str) -> list[int]:
        """As `encode`, after what the tokenizer puts before any text, such as `<s>`, unless the
        prompt begins with that.
        """
        ids, before = self.encode(prompt), self._before
        return ids if ids[: len(before)] == before else before + ids

    def is_special(self, token: int) -> bool:
        """Whether an id is that of a control token."""
        return token in self._special_ids

    def marked(self, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str:
        """The text of ids for a reader: ⟦…⟧ around each control token."""

        def pieces() -> Iterator[str]:
            for is_control, run in groupby(ids, self.is_special):
                if is_control:
                    yield from (f"⟦{decode([one])}⟧" for one in run)
                else:
                    yield decode(list(run))

        return "".join(pieces())

    def _ids(self, text: str, *, as_text: bool) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=as_text)
        return cast(list[int], encoded["input_ids"])

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder
        return frozenset(number for number, token in added.items() if token.special)

    @cached_property
    def _special(self) -> str:
        """Pattern of any special token, the longest first."""
        added = self._tokenizer.added_tokens_decoder
        texts = sorted((added[one].content for one in self._special_ids), key=len, reverse=True)
        return "|".join(re.escape(text) for text in texts if text)

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile(self._special)

    @cached_property
    def _fenced(self) -> re.Pattern[str]:
        return re.compile(f"{_OPEN}({self._special}){_CLOSE}")

    @cached_property
    def _before(self) -> list[int]:
        """Ids that the tokenizer puts before any text."""
        whole = cast(list[int], self._tokenizer("a")["input_ids"])
        bare = self._ids("a", as_text=False)
        starts = range(len(whole) - len(bare) + 1)
        start = next((i for i in starts if whole[i : i + len(bare)] == bare), 0)
        return whole[:start]
