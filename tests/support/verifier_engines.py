"""Verifier engines that follow marks in the texts; their tokens are characters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from math import log
from typing import Any

from mclabel.core.records import Completion
from mclabel.engines.scripted import ScriptedEngine

VERDICTS = ("yes", "no", "Yes", "No")
SURE = 0.9
"""Chance that `SureEngine` gives to the stated verdict."""
_STEP = re.compile(r"^Step \d+: (.*)$", re.MULTILINE)


class KnowingEngine(ScriptedEngine):
    """An engine that writes ThinkPRM's chains.

    The first wrong step is N if the problem contains `[error N]`, and no step is wrong for N=-1.
    Without this mark it is the first step that contains `wrong`, as the scripted policy writes.
    Chains are cut if the text contains `[unknown]` or `shaky`, and have no verdict for `[silent]`.
    For `[torn]`, half of the chains find the first step wrong.
    """

    class Settings(ScriptedEngine.Settings):
        """The settings of the scripted policy."""

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Return the verification of the prompt's steps."""
        prompt_text = self.decode(prompt)
        steps = _STEP.findall(prompt_text)
        error = 0 if "[torn]" in prompt_text and seed % 2 else first_error(prompt_text, steps)
        text = ""
        for index in range(len(steps)):
            verdict = "incorrect" if index == error else "correct"
            text += f"\nStep {index + 1}: I looked. The step is \\boxed{{{verdict}}}\n"
            if index == error:
                break
        text = "\nI cannot tell.\n" if "[silent]" in prompt_text else text
        is_cut = "[unknown]" in prompt_text or "shaky" in prompt_text
        return self._completion(text if is_cut else f"{text}</think>", is_cut=is_cut)

    def _completion(self, text: str, *, is_cut: bool = False) -> Completion:
        self._num_tokens += len(text)
        reason = "length" if is_cut else "stop"
        ids = ScriptedEngine.encode(self, text)
        return Completion(ids=ids, text=text, finish_reason=reason, at_stop=not is_cut)


def first_error(text: str, steps: Sequence[str]) -> int:
    """Return the index of the first wrong step; -1 if no step is wrong."""
    if label := re.findall(r"\[error (-?\d+)\]", text):
        return int(label[-1])
    return next((i for i, step in enumerate(steps) if "wrong" in step), -1)


class SureEngine(KnowingEngine):
    """An engine that also returns chances: `SURE` for the chain's verdict.

    A verdict is one token.
    """

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the characters, with one id for a verdict at the end."""
        for number, word in enumerate(VERDICTS):
            if text.endswith((f" {word}", f"{{{word}")):
                return (*map(ord, text.removesuffix(word)), 0xE000 + number)
        return super().encode(text)

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Return the log-probabilities of the good and the bad verdict."""
        chances = (1 - SURE, SURE) if self._is_wrong(prompt, prefix) else (SURE, 1 - SURE)
        return tuple(map(log, chances))[: len(tokens)]

    def _is_wrong(self, prompt: Sequence[int], prefix: Sequence[int]) -> bool:
        return "boxed{incorrect}" in self.decode(prefix)


class TurnEngine(SureEngine):
    """An engine that writes GenPRM's turns: an analysis, or a judgement if it is requested as text.

    It also judges a step as wrong if an earlier step was judged `No`.
    """

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...] | None:
        """Return the ids of all questions and answers in order."""
        return ScriptedEngine.encode(self, "".join(map("".join, turns)) + problem)

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Return an analysis or a judgement."""
        if not self.decode(prefix).endswith("boxed{"):
            text = " I looked.\n</analyze>"
            return self._completion(text, is_cut="[unknown]" in self.decode(prompt))
        return self._completion("No}" if self._is_wrong(prompt, prefix) else "Yes}")

    def _is_wrong(self, prompt: Sequence[int], prefix: Sequence[int]) -> bool:
        prompt_text, written_text = self.decode(prompt), self.decode(prefix)
        paragraph = re.search(r"Paragraph (\d+)", written_text)
        is_error = paragraph is not None and int(paragraph[1]) - 1 == first_error(prompt_text, ())
        return is_error or "boxed{No}" in prompt_text


class SlowEngine(KnowingEngine):
    """An engine whose chains never end."""

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """Wait for ever."""
        self._num_live += 1
        await asyncio.Event().wait()
        raise AssertionError("unreachable")
