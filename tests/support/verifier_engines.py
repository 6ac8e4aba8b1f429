"""Engines that verify as they are told: a label in the problem's text says what they find."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log

from mclabel.core.records import Completion
from mclabel.engines.scripted import ScriptedEngine

LABEL = re.compile(r"\[error (-?\d+)\]")
"""In a problem: index of the first wrong step, -1 for none."""
SURE = 0.9


class KnowingEngine(ScriptedEngine):
    """Writes ThinkPRM's chains with the labels as verdicts; tokens are characters.

    A problem with `[unknown]` gets chains that are cut, one with `[silent]` such without a verdict,
    one with `[torn N]` chains of which every N-th names the first step.
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
        """The verification that the problem's label asks for."""
        asked = self.decode(prompt)
        label = int(LABEL.findall(asked)[-1])
        torn = re.search(r"\[torn (\d)\]", asked)
        if torn is not None and seed % int(torn[1]) == 0:
            label = 0
        steps = re.findall(r"^Step (\d+):", asked, re.MULTILINE)
        text = ""
        for index in range(len(steps)):
            verdict = "incorrect" if index == label else "correct"
            text += f"\nStep {index + 1}: so I looked. The step is \\boxed{{{verdict}}}\n"
            if index == label:
                break
        if "[silent]" in asked:
            text = "\nI cannot tell.\n"
        is_cut = "[unknown]" in asked
        self._num_tokens += len(text)
        if not is_cut:
            text += "</think>"
        return Completion(
            ids=self.encode(text),
            text=text,
            finish_reason="length" if is_cut else "stop",
            at_stop=not is_cut,
        )


class SureEngine(KnowingEngine):
    """Gives the chance `SURE` to what the label says; "yes", "no", "Yes" and "No" are one token."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Characters, and one id for a word that is a verdict at the end."""
        for number, word in enumerate(("yes", "no", "Yes", "No")):
            if text.endswith(f" {word}") or text.endswith(f"{{{word}"):
                return (*map(ord, text.removesuffix(word)), 0xE000 + number)
        return tuple(map(ord, text))

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """What the chain has said, with the chance that it has."""
        is_wrong = "boxed{incorrect}" in self.decode(prefix)
        chances = (1 - SURE, SURE) if is_wrong else (SURE, 1 - SURE)
        return tuple(log(one) for one in chances[: len(tokens)])
