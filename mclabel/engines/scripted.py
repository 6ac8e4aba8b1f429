r"""A policy whose step values are known exactly, for tests and simulations of the machinery.

It writes `num_steps` lines, each one of three words: `sound` leaves the chance of a right
answer as it is, `shaky` halves it, `wrong` ends it. The last line boxes the right answer with
the chance that is left. The right answer is read from the problem text, `... [answer 42]`;
token ids are Unicode code points, so prefixes of texts are prefixes of ids.
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
from typing import NoReturn

from mclabel.engines.base import EngineStats, SamplingParams
from mclabel.errors import EngineDied, EngineError
from mclabel.records import Completion

WORDS = {"sound": (0.75, 1.0), "shaky": (0.15, 0.5), "wrong": (0.10, 0.0)}
"""Word: how likely it is, and its factor on the chance of a right answer."""


class ScriptedPolicy:
    """A `Policy` with known values."""

    def __init__(
        self,
        *,
        sampling: SamplingParams,
        num_steps: int = 4,
        delay_s: float = 0.0,
        truncate_rate: float = 0.0,
        repeatable: bool = True,
        crash_rate: float = 0.0,
        load_failure_rate: float = 0,
        crash_hard: bool = False,
        poison: bool = False,
        hang_after: int | None = None,
        hang: bool = False,
        max_context: int | None = None,
    ) -> None:
        """Args:
        sampling: only `max_tokens` is used (characters).
        num_steps: lines before the answer line.
        delay_s: mean of the random time a completion takes.
        truncate_rate: share of completions that are cut.
        repeatable: False makes the same seed give another text each time, as real engines do.
        crash_rate: chance that a completion ends the engine instead.
        load_failure_rate: chance that the engine cannot be loaded.
        crash_hard: a crash kills the process, as memory that runs out does.
        poison: problems with `[poison]` in them end the engine, when a rollout of them is sampled.
        hang_after: completions after which the engine stops: nothing it samples ends any more.
        hang: problems with `[hang]` in them stop the engine, when a rollout of them is sampled.
        max_context: characters of prompt and solution; None for no bound.
        """
        self._crash_rate, self._crash_hard = crash_rate, crash_hard
        self._load_failure_rate, self._dead = load_failure_rate, False
        self._poison = poison
        self._num_left = inf if hang_after is None else hang_after
        self._hang, self._hangs = hang, False
        self._sampling, self._num_steps = sampling, num_steps
        self._delay_s, self._truncate_rate, self._repeatable = delay_s, truncate_rate, repeatable
        self._num_tokens = self._num_live = 0
        self.max_context = inf if max_context is None else max_context

    max_token_chars = 4

    async def start(self) -> None:
        if random.random() < self._load_failure_rate:
            self._crash("could not be loaded", EngineError)

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        return self.encode(problem + "\n")

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        rng = random.Random(seed if self._repeatable else secrets.randbits(64))
        problem = self.decode(prompt)
        self._num_live += 1
        try:
            await asyncio.sleep(rng.expovariate(1 / self._delay_s) if self._delay_s else 0)
            hangs = self._hang and len(prefix) > 0 and "[hang]" in problem
            self._hangs = self._hangs or hangs or self._num_left < 1
            if self._hangs:
                await asyncio.Event().wait()
        finally:
            self._num_live -= 1
        poisoned = self._poison and len(prefix) > 0 and "[poison]" in problem
        if self._dead or poisoned or random.random() < self._crash_rate:
            self._dead = True
            self._crash("died", EngineDied)
        self._num_left -= 1
        text = self._continue(problem, self.decode(prefix), rng)
        if rng.random() < self._truncate_rate:
            text = text[: rng.randrange(len(text))]
            cut = True
        else:
            room = self._sampling.room(len(prompt), len(prefix), self.max_context)
            cut = len(text) > room
            text = text[:room]
        self._num_tokens += len(text)
        return Completion(
            ids=self.encode(text), text=text, finish_reason="length" if cut else "stop"
        )

    def stats(self) -> EngineStats:
        return EngineStats(num_live=self._num_live, num_sampled_tokens=self._num_tokens)

    async def close(self) -> None:
        """Nothing to free."""

    def _crash(self, how: str, kind: type[EngineError]) -> NoReturn:
        if self._crash_hard:
            os.kill(os.getpid(), signal.SIGKILL)
        raise kind(f"policy.engine=scripted: the engine {how}, as it was told to")

    def value(self, prefix: str) -> float:
        """The true value of a solution that begins with `prefix`, whole lines of it."""
        lines = prefix.count("\n")
        mean = sum(chance * factor for chance, factor in WORDS.values())
        return _chance(prefix) * mean ** (self._num_steps - lines)

    def _continue(self, prompt: str, prefix: str, rng: random.Random) -> str:
        words = list(WORDS)
        weights = [chance for chance, _ in WORDS.values()]
        done = prefix.count("\n")
        lines = [
            f"Line {i + 1} is {rng.choices(words, weights)[0]}.\n"
            for i in range(done, self._num_steps)
        ]
        gold = re.search(r"\[answer (.*?)\]", prompt)
        right = gold[1] if gold else "0"
        is_right = rng.random() < _chance(prefix + "".join(lines))
        answer = right if is_right else f"{right}0{rng.randrange(1, 4)}"
        return "".join(lines) + f"The answer is \\boxed{{{answer}}}."


def _chance(text: str) -> float:
    chance = 1.0
    for word in re.findall(r"is (sound|shaky|wrong)\.\n", text):
        chance *= WORDS[word][1]
    return chance
