"""Find the same solution in two places, and carry the index of a step from one to the other.

Labelled solutions are cut on token boundaries, and people's files join steps in many ways, so
texts are compared without whitespace, and steps by the characters that they hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from mclabel.core.records import LabeledSolution
from mclabel.data.leaks import leak_key


def compact(text: str) -> str:
    """`text` without whitespace."""
    return "".join(text.split())


def solution_key(problem: str, steps: Sequence[str]) -> tuple[str, str]:
    """The same for the same solution of the same problem, however it is cut into steps."""
    return compact(problem), compact("".join(steps))


def row_key(row: LabeledSolution) -> tuple[str, str]:
    """The key of a labelled solution."""
    return compact(row.problem.text), compact(row.solution.text)


def same_words(row: LabeledSolution, problem: str, steps: Sequence[str]) -> bool:
    """Whether a labelled solution reads as another one, as far as a tokenizer lets texts be.

    Some tokenizers do not give back every character, such as marks and wide letters.
    """
    pairs = ((row.problem.text, problem), (row.solution.text, " ".join(steps)))
    return all(compact(leak_key(one)) == compact(leak_key(other)) for one, other in pairs)


def given_alone(rows: Sequence[LabeledSolution]) -> dict[str, LabeledSolution]:
    """By the id of its problem, each given solution whose problem has no other.

    An id names a solution only there: sampled ones of the same problem are other solutions.
    """
    count = Counter(row.problem.id for row in rows)
    return {
        row.problem.id: row
        for row in rows
        if count[row.problem.id] == 1 and row.solution.origin == "given"
    }


def to_labelled(index: int | None, given: Sequence[str], labelled: Sequence[str]) -> int | None:
    """Where a step of a given solution lies in the labelled one, whose steps may end later.

    Args:
        index: of a given step; None stays None.
        given: texts of the steps as they were given.
        labelled: texts of the steps that were labelled, moved to token ends.
    """
    if index is None or (same := _ends(given)) == (ends := _ends(labelled)):
        return index
    return min(bisect_right(ends, max(same[index] - 1, 0)), len(ends) - 1)


def to_given(index: int | None, labelled: Sequence[str], given: Sequence[str]) -> int | None:
    """Where a step of a labelled solution lies in the given one; see `to_labelled`."""
    if index is None or (own := _ends(labelled)) == (ends := _ends(given)):
        return index
    return min(bisect_right(ends, own[index - 1] if index else 0), len(ends) - 1)


def _ends(steps: Sequence[str]) -> list[int]:
    """Number of characters up to the end of each step, whitespace not counted."""
    return list(accumulate(len(compact(step)) for step in steps))
