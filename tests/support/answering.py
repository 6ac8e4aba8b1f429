"""A scripted policy that thinks aloud, commits to answers, corrects itself, and answers at once."""

from __future__ import annotations

import random
import re

from mclabel.engines.scripted import ScriptedEngine

CLOSING = "</think>\n\nThe answer is \\boxed{"


class AnsweringEngine(ScriptedEngine):
    """An engine whose thinking may go wrong at each line and be corrected at a later one.

    Its answers on demand and at the end are right if no error stands uncorrected.
    """

    class Settings(ScriptedEngine.Settings):
        """Settings of the scripted policy with a number of lines."""

        num_lines: int = 6

    def _generate_continuation(self, prompt: str, prefix: str, rng: random.Random) -> str:
        gold = re.search(r"\[answer (.*?)\]", prompt)
        right = gold[1] if gold else "0"
        if prefix.endswith("\\boxed{"):
            return f"{self._state_answer(prefix, right)}}}. And so on."
        text = "" if prefix else "<think>\n"
        for number in range((prefix + text).count("\n"), self.settings.num_lines + 1):
            has_standing_error = self._is_wrong(prefix + text)
            draw = rng.random()
            if has_standing_error and draw < 0.3:
                text += f"Wait, line {number} puts it right.\n"
            elif not has_standing_error and draw < 0.2:
                text += f"Line {number} is wrong.\n"
            elif draw > 0.8:
                text += f"So the answer is {self._state_answer(prefix + text, right)}.\n"
            else:
                text += f"Line {number} goes on.\n"
        return f"{text}{CLOSING}{self._state_answer(prefix + text, right)}}}."

    @staticmethod
    def _is_wrong(text: str) -> bool:
        return text.rfind("is wrong") > text.rfind("puts it right")

    def _state_answer(self, text: str, right: str) -> str:
        return f"{right}0" if self._is_wrong(text) else right
