r"""The verdict on one completion, as the reward functions and scorers of trainers ask for it.

    from mclabel.answers import verdict_on

    verdict_on(r"So it is \boxed{0.5}.", "1/2")  # Verdict.RIGHT

Any thread, process or actor may call it. In an event loop, call it by `asyncio.to_thread`: the
first pair that needs sympy takes seconds. `examples/trainers/` has it in TRL, verl, verifiers and
inspect_ai. `mc.grade` gives the reason, too, and takes other checkers.
"""

from __future__ import annotations

from typing import Any

from mclabel.answers.checker import default_checker
from mclabel.answers.golds import NoGold, acceptable_answers, best_grade, read_gold
from mclabel.core.errors import DataError
from mclabel.core.records import Verdict


def verdict_on(completion: str, gold: Any) -> Verdict:
    """Whether the answer of a completion is right, wrong or unknown.

    It is unknown, too, where the gold says that there is none, such as `proof` or None: the reward
    of such a row is no signal.

    Args:
        completion: a whole solution, or an answer alone.
        gold: the right answer in any form that data sets have (docs/answers.md), or a list of
            acceptable ones.

    Raises:
        DataError: the gold is not understood, or is no answer but data.
    """
    known = read_gold(gold)
    if isinstance(known, NoGold) and known.reason == "no_gold":
        return Verdict.UNKNOWN
    answers = () if isinstance(known, NoGold) else acceptable_answers(known)
    if not answers:
        raise DataError(
            f"gold={ascii(gold)[:80]}: must be a text, a number, or a list of them, is a "
            f"{type(gold).__name__}. Give the right answer as one of these"
        )
    checker = default_checker()
    return best_grade([checker.grade_completion(completion, one)[1] for one in answers]).verdict
