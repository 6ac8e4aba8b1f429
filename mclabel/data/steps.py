"""Split a solution into steps whose boundaries lie on token boundaries.

A rollout continues a prefix token by token, so a step must end where one of the policy's own
tokens ends. The split works on the text and moves each boundary forward to the next token
end; the steps' texts always join to the solution's text exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mclabel.records import Step

NEWLINE = re.compile(r"\n\s*")


def newline_ends(text: str) -> list[int]:
    """Character positions where steps end, one step a non-empty line.

    Blank lines belong to the step before them; the last step takes what is left.
    """
    lead = len(text) - len(text.lstrip())
    ends = [m.end() for m in NEWLINE.finditer(text) if lead < m.end() < len(text)]
    return [*ends, len(text)] if text else []


def split_steps(
    ids: Sequence[int], text: str, char_ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> tuple[Step, ...]:
    """Steps of a solution, boundaries moved to token ends.

    Args:
        ids: the solution's token ids; `decode(ids) == text`.
        text: the solution.
        char_ends: rising character positions where steps should end.
        decode: token ids to text; the text of more ids is never shorter.
    """
    steps: list[Step] = []
    start, position = 0, 0
    for wanted in char_ends:
        if wanted <= position:
            continue  # an earlier boundary moved past this one
        end = len(ids) if wanted == len(text) else _token_end(ids, wanted, decode, low=start)
        while end < len(ids) and not text.startswith(decode(ids[:end])):
            end += 1  # a character is cut in two here
        reached = len(text) if end == len(ids) else len(decode(ids[:end]))
        steps.append(Step(text=text[position:reached], end=end))
        start, position = end, reached
    return tuple(steps)


def _token_end(
    ids: Sequence[int], char_end: int, decode: Callable[[Sequence[int]], str], *, low: int
) -> int:
    """The smallest number of ids whose text reaches `char_end`."""
    high = len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(decode(ids[:middle])) >= char_end:
            high = middle
        else:
            low = middle + 1
    return low
