"""The probability of a verdict, read at the token that says it after a forced question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite

from mclabel.core.errors import ConfigError, EngineError
from mclabel.engines import Engine


@dataclass(frozen=True)
class VerdictTokens:
    """A question, and the tokens of its two answers."""

    question: tuple[int, ...]
    """Ids of the question, up to where the answers part."""
    good: int
    bad: int

    @classmethod
    def of(cls, engine: Engine, question: str, answers: tuple[str, str]) -> VerdictTokens:
        """Find the tokens.

        Question and answer are tokenised in one piece, as the model has read them in training: what
        both answers begin with, such as a space, belongs to the question.

        Args:
            engine: started.
            question: that is put behind a chain.
            answers: the good one and the bad one.

        Raises:
            ConfigError: an answer is not one token.
        """
        good, bad = (engine.encode(question + answer) for answer in answers)
        num_common = 0
        while num_common < min(len(good), len(bad)) and good[num_common] == bad[num_common]:
            num_common += 1
        for answer, ids in zip(answers, (good, bad), strict=True):
            if len(ids) != num_common + 1:
                raise ConfigError(
                    f"generative.read=token: {answer!r} is {len(ids) - num_common} tokens of this "
                    f"model's tokenizer after {question!r}, and must be one for its probability to "
                    "be read. Set generative.read=text"
                )
        return cls(good[:num_common], good[num_common], bad[num_common])

    async def chance(
        self, engine: Engine, prompt: Sequence[int], prefix: Sequence[int]
    ) -> float | None:
        """P(good) / (P(good) + P(bad)) after the question; None from an engine that tells none.

        Args:
            engine: started.
            prompt: ids of the prompt.
            prefix: ids of the chain.

        Raises:
            EngineError: the engine gives no numbers.
        """
        found = await engine.logprobs(prompt, (*prefix, *self.question), (self.good, self.bad))
        if found is None:
            return None
        good, bad = found
        if not isfinite(max(good, bad)):
            raise EngineError(
                f"generative.read=token: the engine gives the log-probabilities {good} and {bad}, "
                "of which one must be finite. The model's weights are damaged, or overflow"
            )
        least = min(good - bad, 700.0) if good > bad else max(good - bad, -700.0)
        return 1 / (1 + exp(-least))
