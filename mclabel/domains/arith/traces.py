"""Reasoning traces written under misconceptions, whose author checks steps and corrects some.

A trace thinks aloud, a step a line, and then answers. Events are misread at the rates of
`mclabel.domains.arith.misconceptions`, and what follows rests on the mistake. Some misreadings are
noticed, at once, a few steps later or in a check after an answer: "Wait, " states the step rightly,
and the steps that rest on it are computed anew. Others never are. Sound steps are checked, too
("Let me check: " before the first of them), and now and then one is "corrected" into a wrong one.

How often a trace states an answer on its way was counted beforehand in 59 public traces on
MATH-500, 20 of DeepSeek-R1, 20 of R1-Distill-Llama-8B and 19 of R1-Distill-Qwen-7B, in
`data/traces` of github.com/markyx316/LLM-Reasoning-Trace-Topology. A paragraph counted if it says
"answer is", "answer:" or a boxed value. In 12% of traces none does before the thinking ends; the
mean is 2.3 a trace (3.1, 2.1 and 1.7 by model); 51% have two or more, 36% three or more. The models
differ far more by paragraph (.169, .015 and .026), and by sentence (.025, .009, .012), so that
traces go by the number in a trace: none with the chance `SILENT`, else one and a geometric number
more.
"""

from __future__ import annotations

import random

from mclabel.domains.arith.misconceptions import (
    Misreading,
    draw_misreading,
    misreading,
    numbers_of,
    read_node,
)
from mclabel.domains.arith.program import Program, ancestors, answer_line
from mclabel.domains.arith.states import ANSWER, CHECK, END_THINK, THINK, WAIT, say

SILENT, MORE_ANSWERS = 0.12, 1.6
"""Chance of a trace without an answer on its way; mean number of answers after the first."""
SELDOM_NOTICED = frozenset(("fewer", "turn_back", "break_part"))
"""Events whose misreading is seldom noticed."""
NOTICED, NOTICED_SELDOM = 0.75, 0.2
"""Chances that a misreading is noticed."""
MISCORRECTED = 0.01
"""Chance that a sound step is "corrected" into a wrong one when it has been written."""
CHECKED, CHECK_ENDS = 0.05, 0.2
"""Chances that a step is checked when it has been written, and that a check ends behind a step."""
MIN_LINES, MAX_LINES = 10, 56


def write_trace(
    program: Program,
    problem_text: str,
    *,
    rng: random.Random,
    strength: float,
    answer_rate: float = 1.0,
) -> str:
    """A trace on a problem, with its thinking and its answer line.

    One that leads out of the range of quantities is dropped, so that a trace always calculates
    rightly.

    Args:
        program: the problem's hidden program.
        problem_text: its numbers are the wrong operands to choose from.
        rng: decides everything.
        strength: factor on the rates of misreadings and of wrong corrections.
        answer_rate: share of the answers on the way that are written; 0.5 halves their number.
    """
    for attempt in range(16):
        writer = _Writer(program, problem_text, rng, strength if attempt < 15 else 0.0)
        if writer.write(answer_rate) and len(writer.lines) <= MAX_LINES:
            break
    return "\n".join([THINK, *writer.lines, END_THINK, answer_line(writer.answer)])


class _Writer:
    """One attempt at a trace."""

    def __init__(
        self, program: Program, problem_text: str, rng: random.Random, strength: float
    ) -> None:
        self.lines: list[str] = []
        self._program, self._rng, self._strength = program, rng, strength
        self._numbers = numbers_of(problem_text)
        self._needed = program.needed()
        self._values: dict[int, int] = {}
        self._misread: dict[int, Misreading] = {}
        self._texts: dict[int, str] = {}
        self._fits = True

    @property
    def answer(self) -> int:
        return self._values[self._program.target]

    def write(self, answer_rate: float) -> bool:
        """Write all lines before the answer; False if a value was out of range."""
        rng = self._rng
        num_answers = 0 if rng.random() < SILENT else 1
        while num_answers and rng.random() < MORE_ANSWERS / (1 + MORE_ANSWERS):
            num_answers += 1
        to_notice = self._first_pass()
        rounds = max(num_answers - 1, int(bool(to_notice) or rng.random() < 0.5))
        occasions = set(rng.sample(range(rounds + 1), min(num_answers, rounds + 1)))
        for number in range(rounds + 1):
            if number:
                found = [i for i in to_notice if rng.random() < number / rounds]
                self._check(found)
                to_notice = [i for i in to_notice if i not in found]
            if number in occasions and self._fits and rng.random() < answer_rate:
                self.lines.append(ANSWER.format(self.answer))
        while self._fits and len(self.lines) < MIN_LINES:
            self._check([])
        return self._fits

    def _first_pass(self) -> list[int]:
        """Go through the problem; gives the misreadings that a check is to find."""
        rng, pending, for_checks = self._rng, dict[int, list[int]](), list[int]()
        for position, index in enumerate(self._needed):
            node = self._program.nodes[index]
            wrongly = draw_misreading(node, self._numbers, rng, self._strength)
            if wrongly is not None:
                self._misread[index] = wrongly
                if rng.random() < (NOTICED_SELDOM if node.event in SELDOM_NOTICED else NOTICED):
                    delay = rng.choice((0, 0, 1, 2, 3, None, None))
                    if delay is None or position + delay >= len(self._needed):
                        for_checks.append(index)
                    else:
                        pending.setdefault(position + delay, []).append(index)
            self._state(index)
            if wrongly is None and rng.random() < MISCORRECTED * self._strength:
                self._misread[index] = misreading(node, self._numbers, rng)
                if self._misread[index].kind == "skip":
                    del self._misread[index]
                else:
                    self._state(index, WAIT)
                    for_checks += [index] * (rng.random() < NOTICED)
            elif rng.random() < CHECKED:
                self._state(index, CHECK)
            for noticed in pending.get(position, []):
                self._repair(noticed)
        return for_checks

    def _check(self, found: list[int]) -> None:
        """Go through steps again up to the first that is found to be wrong, and repair all found.

        Without any, from anywhere on, to the end or before.
        """
        rng, needed = self._rng, self._needed
        start = rng.randrange(len(needed))
        if found:
            start = max(0, needed.index(found[0]) - rng.randrange(4))
        remark = CHECK
        for index in needed[start:]:
            if index in found:
                break
            if self._state(index, remark):
                remark = ""
            if not found and rng.random() < CHECK_ENDS:
                break
        for index in found:
            self._repair(index)

    def _repair(self, index: int) -> None:
        """State a step rightly, and what rests on it anew."""
        del self._misread[index]
        self._state(index, WAIT)
        for other in self._needed:
            rests = index in ancestors(self._program.nodes, other) and other != index
            if rests and other in self._values:
                self._state(other)

    def _state(self, index: int, remark: str = "") -> bool:
        """Write a step as its event is read now; False if nothing is written of it."""
        if not self._fits:
            return False
        found = read_node(self._program, index, self._values, self._misread.get(index))
        if found is None:
            self._fits = False
            return False
        self._values[index], text = found
        if text is not None:
            self.lines.append(say(remark, text) if remark else text)
        return text is not None
