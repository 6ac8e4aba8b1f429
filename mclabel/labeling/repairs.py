r"""Whether a completion goes back on what it continues.

A rollout from a wrong step that says "Wait, that is wrong" and mends it shows nothing of the step,
though it ends right: a policy that corrects itself recovers from most errors ("Beyond the First
Error", arXiv 2505.14391). It is told by its words, and by equations: the same left side with
another value.
"""

from __future__ import annotations

import re

_MARKS = re.compile(
    r"\b(?:wait|hold on|hmm+|oops|scratch that|correction|on second thought|my mistake|"
    r"let me (?:fix|correct|redo|try again|start over|go back)|"
    r"i (?:made|see|found|spot|notice) (?:a|an|the|my) (?:mistake|error|slip)|"
    r"(?:that|this|it)(?:'s| is| was| can(?:'t| ?not) be) (?:wrong|not right|incorrect|a mistake)|"
    r"actually,? (?:no|that|it|the)|no, (?:that|it|wait))\b|等等|不对|等一下|我错了|重新",
    re.IGNORECASE,
)
_EQUATION = re.compile(r"([\d.,\s+*/()\u00d7\u00f7-]{3,80})=\s{0,4}(-?\d[\d.,]{0,20})")
_OPERATOR = re.compile(r"\d\s{0,3}[-+*/\u00d7\u00f7]")
MAX_CHARACTERS = 20_000
"""Of a completion that are read; a repair comes early or is none of the prefix."""


def goes_back(completion: str, prefix: str) -> bool:
    """Whether a completion says that something before it is wrong, or contradicts an equation.

    Args:
        completion: that follows the prefix.
        prefix: of a solution.
    """
    text = completion[:MAX_CHARACTERS]
    if _MARKS.search(text):
        return True
    before = _equations(prefix[-MAX_CHARACTERS:])
    return any(before.get(left, value) != value for left, value in _equations(text).items())


def _equations(text: str) -> dict[str, str]:
    """Values of arithmetic left sides that a text writes, without white space."""
    return {
        "".join(left.split()): value.rstrip(".,")
        for left, value in _EQUATION.findall(text)
        if _OPERATOR.search(left)
    }
