"""Engines that verify as the texts tell them to, whose tokens are characters."""

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
"""The chance that `SureEngine` gives to what was said."""
_STEP = re.compile(r"^Step \d+: (.*)$", re.MULTILINE)


class KnowingEngine(ScriptedEngine):
    """Writes ThinkPRM's chains. The first wrong step is N where the problem holds `[error N]`, else
    the first step that says `wrong`, as the scripted policy writes; there is none for N=-1.

    Chains are cut for a text with `[unknown]` or `shaky`, give no verdict for one with `[silent]`,
    and for one with `[torn]` half of them find the first step wrong.
    """

    class Settings(ScriptedEngine.Settings):
        """Nothing more to set."""

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
        """The verification."""
        asked = self.decode(prompt)
        steps = _STEP.findall(asked)
        error = first_error(asked, steps)
        if "[torn]" in asked and seed % 2:
            error = 0
        text = ""
        for index in range(len(steps)):
            verdict = "incorrect" if index == error else "correct"
            text += f"\nStep {index + 1}: I looked. The step is \\boxed{{{verdict}}}\n"
            if index == error:
                break
        text = "\nI cannot tell.\n" if "[silent]" in asked else text
        is_cut = "[unknown]" in asked or "shaky" in asked
        return self._completion(text if is_cut else f"{text}</think>", is_cut=is_cut)

    def _completion(self, text: str, *, is_cut: bool = False) -> Completion:
        self._num_tokens += len(text)
        reason = "length" if is_cut else "stop"
        ids = ScriptedEngine.encode(self, text)
        return Completion(ids=ids, text=text, finish_reason=reason, at_stop=not is_cut)


def first_error(text: str, steps: Sequence[str]) -> int:
    """Index of the first wrong step, -1 for none."""
    if label := re.findall(r"\[error (-?\d+)\]", text):
        return int(label[-1])
    return next((i for i, step in enumerate(steps) if "wrong" in step), -1)


class SureEngine(KnowingEngine):
    """Gives a chance, too: `SURE` for what the chain has said. A verdict is one token."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Characters, and one id for a verdict at the end."""
        for number, word in enumerate(VERDICTS):
            if text.endswith((f" {word}", f"{{{word}")):
                return (*map(ord, text.removesuffix(word)), 0xE000 + number)
        return super().encode(text)

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Of the good verdict and the bad one."""
        is_wrong = "boxed{incorrect}" in self.decode(prefix)
        return tuple(map(log, (1 - SURE, SURE) if is_wrong else (SURE, 1 - SURE)))[: len(tokens)]


class TurnEngine(SureEngine):
    """Writes GenPRM's turns: an analysis, and a judgement where it is asked for as text.

    It takes a step for wrong after which an earlier one was judged `No`, too.
    """

    def chat_ids(self, turns: Sequence[tuple[str, str]], problem: str) -> tuple[int, ...] | None:
        """Questions and answers, one after the other."""
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
        """An analysis, or a judgement."""
        if not self.decode(prefix).endswith("boxed{"):
            text = " I looked.\n</analyze>"
            return self._completion(text, is_cut="[unknown]" in self.decode(prompt))
        return self._completion("No}" if self._is_wrong(prompt, prefix) else "Yes}")

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Of Yes and No."""
        is_wrong = self._is_wrong(prompt, prefix)
        return tuple(map(log, (1 - SURE, SURE) if is_wrong else (SURE, 1 - SURE)))[: len(tokens)]

    def _is_wrong(self, prompt: Sequence[int], prefix: Sequence[int]) -> bool:
        asked, said = self.decode(prompt), self.decode(prefix)
        paragraph = re.search(r"Paragraph (\d+)", said)
        is_error = paragraph is not None and int(paragraph[1]) - 1 == first_error(asked, ())
        return is_error or "boxed{No}" in asked


class SlowEngine(KnowingEngine):
    """Never ends a chain."""

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """Wait for ever."""
        self._num_live += 1
        await asyncio.Event().wait()
        raise AssertionError("unreachable")
