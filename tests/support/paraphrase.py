"""Free-form wordings of arith's steps."""

from __future__ import annotations

import random
import re

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
