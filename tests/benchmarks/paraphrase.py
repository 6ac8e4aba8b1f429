"""Free-form wordings of arith's steps, to measure agreement that does not rest on exact texts."""

from __future__ import annotations

import random
import re

from mclabel.labeling.prefixes import step_key

_STEP = re.compile(
    r"(?P<lead>.*?)(?P<a>\d+) (?P<op>//|[-+*/]) (?P<b>\d+) = (?P<c>\d+)(?P<tail>.*?)\.?\s*$"
)
_ANSWER = re.compile(r"The answer is \\boxed\{(\d+)\}\.")
_SPOKEN = {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "//": "divided by"}


def paraphrase(step: str, rng: random.Random) -> str:
    """The step in other words: same quantities, another form; anything else as it is."""
    if answer := _ANSWER.search(step):
        value = answer[1]
        return rng.choice(
            [
                f"Therefore the final answer is \\boxed{{{value}}}.",
                f"So we get \\boxed{{ {value}}}.",
                f"\\boxed{{\\text{{{value}}}}} is the answer",
                f"That makes **{value}** in all: \\boxed{{{value}.0}}",
            ]
        )
    found = _STEP.match(step)
    if found is None:
        return step
    a, b, op, c = found["a"], found["b"], found["op"], found["c"]
    if op in "+*" and rng.random() < 0.4:
        a, b = b, a
    lead, tail = found["lead"].strip(), found["tail"].strip()
    return rng.choice(
        [
            f"{lead} {a} {op} {b} = {c} {tail}.",
            f"Since {a} {_SPOKEN[op]} {b} is {c}, {lead} {c} {tail}.",
            f"Next, {a} {_SPOKEN[op]} {b} gives {c}.",
            f"We compute {a} {op} {b} and find that {lead} {c} {tail}",
            f"- {lead}: {c} {tail} ({a} {op} {b})",
        ]
    )


class FreeForm:
    """Words every step anew, and tells what it says."""

    def __init__(self, seed: int, *, by_text: bool = False) -> None:
        """`by_text` compares wordings instead of what they say."""
        self._rng, self._by_text = random.Random(seed), by_text

    def __call__(self, step: str) -> str:
        words = paraphrase(step, self._rng)
        return " ".join(words.split()) if self._by_text else step_key(words)


def canonical_key(step: str) -> str:
    """What a step of arith says, exactly: its words and its equation, operands in either order."""
    found = _STEP.match(step)
    if found is None:
        return step.strip()
    a, b = int(found["a"]), int(found["b"])
    if found["op"] in "+*":
        a, b = sorted((a, b))
    return f"{found['lead']}|{a} {found['op']} {b} = {found['c']}|{found['tail']}"
