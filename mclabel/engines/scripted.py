"""The `scripted` engine: a policy for tests and simulations, whose step values are known exactly.
The value of a step is the probability that a completion from there ends with the right answer.

It writes `num_steps` lines, each with one of three words. `sound` keeps the probability of a right
answer, `shaky` halves it, and `wrong` makes it 0. The last line boxes the right answer with the
remaining probability, else a wrong answer. The right answer is read from a mark such as
`[answer 42]` in the problem. Token ids are Unicode code points.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import signal
from collections.abc import Sequence
from math import inf
from typing import Annotated

from pydantic import Field

from mclabel.core.errors import EngineDied
from mclabel.core.records import Completion
from mclabel.core.settings import MAX_COUNT, MAX_SECONDS, MAX_TOKENS, OPERATIONAL
from mclabel.engines.base import Engine, EngineStats
from mclabel.engines.settings import EngineSettings, PolicySettings

WORDS = {"sound": (0.75, 1.0), "shaky": (0.15, 0.5), "wrong": (0.10, 0.0)}
"""Maps a word to its probability in a line, and to its factor on the probability of a right answer.
"""


class ScriptedEngine(Engine):
    """Writes solutions with known step values, without a model."""

    class Settings(EngineSettings):
        """A policy with known step values, for tests and simulations. It has no model."""

        num_steps: int = Field(4, ge=0, le=MAX_COUNT)
        """Number of solution lines before the answer line."""
        truncate_rate: float = Field(0.0, ge=0, le=1)
        """Fraction of completions that are cut off at a random place, as if at `policy.max_tokens`.
        """
        delay_s: Annotated[float, OPERATIONAL] = Field(0.0, ge=0, le=MAX_SECONDS)
        """Mean duration of a completion in seconds; durations are random."""
        repeatable: Annotated[bool, OPERATIONAL] = True
        """True if the same seed gives the same text. Real engines do not guarantee it."""
        crash_rate: Annotated[float, OPERATIONAL] = Field(0.0, ge=0, le=1)
        """Probability that a completion makes the engine crash."""
        crash_hard: Annotated[bool, OPERATIONAL] = False
        """True if a crash kills the whole process, as running out of memory does."""
        poison: Annotated[bool, OPERATIONAL] = False
        """True if a rollout of a problem with `[poison]` in its text makes the engine crash."""
        hang_after: Annotated[int | None, OPERATIONAL] = Field(None, ge=0, le=MAX_TOKENS)
        """Number of completions after which the engine hangs: no later completion ever ends. null
        never hangs."""
        hang: Annotated[bool, OPERATIONAL] = False
        """True if a rollout of a problem with `[hang]` in its text makes the engine hang."""
        max_context: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_TOKENS)
        """Maximum number of characters of prompt and solution together; null sets no limit."""

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy. Only its `max_tokens` has an effect, as a number of characters."""
        super().__init__(policy, seed=seed)
        after = self.settings.hang_after
        self._num_left = inf if after is None else after
        self._dead = self._hangs = False
        self._num_tokens = self._num_live = 0

    @property
    def max_context(self) -> float:
        """Maximum number of characters in prompt and solution together."""
        most = self.settings.max_context
        return inf if most is None else most

    @property
    def max_token_chars(self) -> int:
        """Upper bound on the characters per token; in fact each token is one character."""
        return 4

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Return the code points of the problem's text and of a line end."""
        return self.encode(problem + "\n")

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the code points of a text."""
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of code points."""
        return "".join(map(chr, ids))

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
        """Write the remaining lines and the answer at random."""
        rng = random.Random(seed if self.settings.repeatable else secrets.randbits(64))
        problem = self.decode(prompt)
        self._num_live += 1
        try:
            delay_s = self.settings.delay_s
            await asyncio.sleep(rng.expovariate(1 / delay_s) if delay_s else 0)
            hangs = self.settings.hang and len(prefix) > 0 and "[hang]" in problem
            self._hangs = self._hangs or hangs or self._num_left < 1
            if self._hangs:
                await asyncio.Event().wait()
        finally:
            self._num_live -= 1
        poisoned = self.settings.poison and len(prefix) > 0 and "[poison]" in problem
        if self._dead or poisoned or random.random() < self.settings.crash_rate:
            self._dead = True
            if self.settings.crash_hard:
                os.kill(os.getpid(), signal.SIGKILL)
            raise EngineDied("policy.engine=scripted: the engine died, as its settings demand")
        self._num_left -= 1
        text = self._generate_continuation(problem, self.decode(prefix), rng)
        if rng.random() < self.settings.truncate_rate:
            text = text[: rng.randrange(len(text))]
            cut = True
        else:
            room = self.policy.room(len(prompt), len(prefix), self.max_context, max_tokens)
            cut = len(text) > room
            text = text[:room]
        ends = [text.index(stop_text) + len(stop_text) for stop_text in stop if stop_text in text]
        if ends:
            text, cut = text[: min(ends)], False
        self._num_tokens += len(text)
        return Completion(
            ids=self.encode(text),
            text=text,
            finish_reason="length" if cut else "stop",
            at_stop=bool(ends),
        )

    def stats(self) -> EngineStats:
        """Return the number of sampled characters and of unfinished completions."""
        return EngineStats(num_live=self._num_live, num_sampled_tokens=self._num_tokens)

    def value(self, prefix: str) -> float:
        """Return the exact probability that a completion of a prefix has the right answer.

        Args:
            prefix: complete lines of a solution.
        """
        lines = prefix.count("\n")
        mean = sum(chance * factor for chance, factor in WORDS.values())
        return _compute_right_chance(prefix) * mean ** (self.settings.num_steps - lines)

    def _generate_continuation(self, prompt: str, prefix: str, rng: random.Random) -> str:
        words = list(WORDS)
        weights = [chance for chance, _ in WORDS.values()]
        done = prefix.count("\n")
        lines = [
            f"Line {i + 1} is {rng.choices(words, weights)[0]}.\n"
            for i in range(done, self.settings.num_steps)
        ]
        gold = re.search(r"\[answer (.*?)\]", prompt)
        right = gold[1] if gold else "0"
        is_right = rng.random() < _compute_right_chance(prefix + "".join(lines))
        answer = right if is_right else f"{right}0{rng.randrange(1, 4)}"
        return "".join(lines) + f"The answer is \\boxed{{{answer}}}."


def _compute_right_chance(text: str) -> float:
    chance = 1.0
    for word in re.findall(r"is (sound|shaky|wrong)\.\n", text):
        chance *= WORDS[word][1]
    return chance
