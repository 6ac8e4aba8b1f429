"""Reasoning traces written under misconceptions, whose author checks steps and corrects some.

A trace thinks aloud, a step a line, and then answers. Events are misread at the rates of
`mclabel.domains.arith.misconceptions`, and what follows rests on the mistake. Some misreadings are
noticed at once: "Wait.", and the step again. Others in a check, behind "Let me check.", which goes
through the whole problem again: "Wait." stands before a step that it reads otherwise than before.
Others are never noticed, and now and then a sound step is "corrected" into a wrong one. These forms
ask little of a small model, as every step is read from the problem and the steps just before.

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
from mclabel.domains.arith.program import Program, answer_line
from mclabel.domains.arith.states import ANSWER, CHECK, END_THINK, THINK, WAIT

SILENT, MORE_ANSWERS = 0.12, 1.6
"""Chance of a trace without an answer on its way; mean number of answers after the first."""
SELDOM_NOTICED = frozenset(("fewer", "turn_back", "break_part"))
"""Events whose misreading is seldom noticed."""
NOTICED, NOTICED_SELDOM = 0.75, 0.2
"""Chances that a misreading is noticed."""
AT_ONCE = 0.4
"""Share of what is noticed that is noticed at once, and not in a check."""
MISCORRECTED = 0.01
"""Chance that a sound step is "corrected" into a wrong one, each time that it is written."""
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
        if writer.write(answer_rate):
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
        self._to_notice: set[int] = set()
        """Misreadings that a check is to find."""

    @property
    def answer(self) -> int:
        return self._values[self._program.target]

    def write(self, answer_rate: float) -> bool:
        """Write all lines before the answer; False if a value was out of range."""
        rng, length = self._rng, len(self._needed)
        num_answers = 0 if rng.random() < SILENT else 1
        while num_answers and rng.random() < MORE_ANSWERS / (1 + MORE_ANSWERS):
            num_answers += 1
        if not self._first_pass():
            return False
        wanted = self._to_notice or len(self.lines) < MIN_LINES or rng.random() < 0.2
        checks = min(max(num_answers - 1, int(bool(wanted))), MAX_LINES // length - 1)
        occasions = rng.sample(range(checks + 1), min(num_answers, checks + 1))
        for number in range(checks + 1):
            if number and not self._check(last=number == checks):
                return False
            if number in occasions and rng.random() < answer_rate:
                self.lines.append(ANSWER.format(self.answer))
        return True

    def _first_pass(self) -> bool:
        rng = self._rng
        for index in self._needed:
            node = self._program.nodes[index]
            wrongly = draw_misreading(node, self._numbers, rng, self._strength)
            if wrongly is not None:
                self._misread[index] = wrongly
            if not self._state(index):
                return False
            noticed = rng.random() < (NOTICED_SELDOM if node.event in SELDOM_NOTICED else NOTICED)
            if wrongly is None:
                fits = not self._miscorrects(index) or self._state(index, WAIT)
            elif noticed and rng.random() < AT_ONCE:
                del self._misread[index]
                fits = self._state(index, WAIT)
            else:
                fits = True
                self._to_notice |= {index} if noticed else set()
            if not fits:
                return False
        return True

    def _check(self, *, last: bool) -> bool:
        """Go through the problem again; the last check finds all that is to be noticed."""
        self.lines.append(CHECK)
        for index in self._needed:
            remark = None
            if index in self._to_notice and (last or self._rng.random() < 0.5):
                self._to_notice.remove(index)
                del self._misread[index]
                remark = WAIT
            elif index not in self._misread and self._miscorrects(index):
                remark = WAIT
            if not self._state(index, remark):
                return False
        return True

    def _miscorrects(self, index: int) -> bool:
        """Whether a sound step is now read wrongly, and noticed to be later or not."""
        node = self._program.nodes[index]
        wrongly = misreading(node, self._numbers, self._rng)
        if wrongly.kind == "skip" or self._rng.random() >= MISCORRECTED * self._strength:
            return False
        self._misread[index] = wrongly
        self._to_notice |= {index} if self._rng.random() < NOTICED else set()
        return True

    def _state(self, index: int, remark: str | None = None) -> bool:
        """Write a step as its event is read now, or leave it out; False if it is out of range."""
        found = read_node(self._program, index, self._values, self._misread.get(index))
        if found is None:
            return False
        self._values[index], text = found
        if text is not None:
            self.lines += [text] if remark is None else [remark, text]
        return True
