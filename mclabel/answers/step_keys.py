r"""What a step says, so that steps that say the same can be told from their texts.

Two solutions that agree on their next step are evidence for it, often the strongest there is;
where a policy is consistently wrong they are evidence of nothing, which the estimator's priors
must learn. Policies word the same step in many ways, so texts are compared by their result as
the answer checker normalises it, together with the numbers it was made of; a step without a
number by its words.
"""

from __future__ import annotations

import re
import unicodedata

from mclabel.answers import answer_key, extract_answer

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_ANSWER = re.compile(r"\\boxed|\\fbox|####")
_WORD = re.compile(r"\w+")


def step_key(text: str) -> str:
    r"""The same for steps that say the same, as far as this can be seen.

    `"Ada has 3 * 4 = 12 pens.\n"` and `"So that makes 12 pens (4 times 3)."` have one key, so
    have two spellings of a boxed answer. Operands may change places; an operation is told by
    its result.

    Args:
        text: one step.
    """
    answer = extract_answer(text) if _ANSWER.search(text) else None
    if answer is not None:
        return f"answer {answer_key(answer)}"
    numbers = [
        answer_key(n.rstrip(",")) for n in _NUMBER.findall(unicodedata.normalize("NFKC", text))
    ]
    if numbers:
        return "numbers " + " ".join(sorted(set(numbers)))
    return "words " + " ".join(_WORD.findall(text.casefold()))
