"""Place where the truth about steps comes from: exact, people, or the same solution in another run.

Labelled solutions are cut on token boundaries, and people's files join steps in many ways, so
texts are compared without whitespace, and steps by the characters that they hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from mclabel.core.errors import DataError
from mclabel.core.records import LabeledSolution
from mclabel.data.leaks import leak_key
from mclabel.data.readers.judged import JudgedSolution, row_steps
from mclabel.evaluate.labels.quality import exact_first_error, has_exact_truth

TruthKind = Literal["exact", "processbench", "prm800k", "run", "people"]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The true first errors of labelled solutions, as far as a source has them."""

    kind: TruthKind
    first_errors: Mapping[str, int | None]
    """True first error by solution id; None for none. A solution that is missing here is unknown to
    the source."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Number of solutions of the run that each stands for, by solution id, where they were drawn
    from it; a solution that is missing here stands for itself."""

    def known_rows(self, rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
        """Return the solutions whose truth the source holds."""
        return [row for row in rows if row.solution.id in self.first_errors]

    def first_error(self, row: LabeledSolution) -> int | None:
        """Return the true first error of a solution whose truth is known."""
        return self.first_errors[row.solution.id]

    def weight(self, row: LabeledSolution) -> float:
        """Return the number of solutions of the run that this one stands for."""
        return self.weights.get(row.solution.id, 1.0)


def exact_truth(rows: Sequence[LabeledSolution]) -> Truth:
    """Return the truth of solutions of the built-in domains.

    Raises:
        DataError: names a solution of another domain.
    """
    if other := next((row for row in rows if not has_exact_truth([row])), None):
        raise DataError(
            f"solution {other.solution.id} of problem {other.problem.id}: its problem carries no "
            "program, so it is of no built-in domain. Give --truth processbench:FILE, "
            "prm800k:FILE or run:FOLDER"
        )
    first_errors = {row.solution.id: exact_first_error(row) for row in rows}
    return Truth(kind="exact", first_errors=first_errors)


def judged_truth(
    kind: TruthKind, rows: Sequence[LabeledSolution], judged: Sequence[JudgedSolution]
) -> Truth:
    """Return the truth of solutions that people, or another run, have judged.

    A solution is found by the texts of problem and solution without whitespace; failing that, a
    given one by the id of its problem, if that has no other solution, the steps are as many and
    the words are the same. Of several judgements of one solution the first with its own id counts,
    then the first. Where a judgement accepts several first errors, the truth is the labelled one if
    it is among them.

    Raises:
        DataError: the id of such a problem names another text there.
    """
    by_key: dict[tuple[str, str], list[JudgedSolution]] = defaultdict(list)
    for judgement in judged:
        by_key[solution_key(judgement.problem, judgement.steps)].append(judgement)
    by_id = {judgement.id: judgement for judgement in judged}
    alone = given_alone(rows)
    first_errors: dict[str, int | None] = {}
    weights: dict[str, float] = {}
    others: list[LabeledSolution] = []
    for row in rows:
        if not row.steps:
            continue
        named = by_id.get(row.problem.id) if row.problem.id in alone else None
        if same := by_key.get(row_key(row)):
            judgement = next((s for s in same if s.id == row.solution.id), same[0])
            mine = row_steps(row)
            weights[row.solution.id] = judgement.weight
            also = {to_labelled(error, judgement.steps, mine) for error in judgement.also}
            first_errors[row.solution.id] = _accepted(
                row, to_labelled(judgement.first_error, judgement.steps, mine), also
            )
        elif named is not None and not same_words(row, named.problem, named.steps):
            others.append(row)
        elif named is not None and len(named.steps) == len(row.steps):
            first_errors[row.solution.id] = _accepted(row, named.first_error, named.also)
    if others:
        raise DataError(
            f"--truth {kind}: has other texts for {len(others)} of the {len(rows)} solutions, the "
            f"first being {others[0].solution.id} of problem {others[0].problem.id}. An id must "
            "name the same problem and solution in both. Give the file whose solutions were "
            "labelled, or ids of their own to other ones"
        )
    return Truth(kind=kind, first_errors=first_errors, weights=weights)


def _accepted(row: LabeledSolution, error: int | None, also: Set[int | None]) -> int | None:
    return row.first_error if row.first_error in also else error


def check_same_problems(
    rows: Sequence[LabeledSolution], others: Sequence[LabeledSolution], name: str
) -> None:
    """Refuse a run whose problems have the ids of others here: their rollouts would be mixed up.

    Raises:
        DataError: names the first solution here whose problem has another text there.
    """
    texts = {row.problem.id: row.problem.text for row in others}
    differ = [r for r in rows if texts.get(r.problem.id, r.problem.text) != r.problem.text]
    if differ:
        raise DataError(
            f"--truth run:{name}: has other texts for the problems of {len(differ)} of the "
            f"{len(rows)} solutions, the first being {differ[0].solution.id} of problem "
            f"{differ[0].problem.id}. Give a run over the same problems"
        )


def compact(text: str) -> str:
    """Return `text` without whitespace."""
    return "".join(text.split())


def solution_key(problem: str, steps: Sequence[str]) -> tuple[str, str]:
    """Return a key that is the same for one solution of one problem, however it is cut into
    steps.
    """
    return compact(problem), compact("".join(steps))


def row_key(row: LabeledSolution) -> tuple[str, str]:
    """Return the key of a labelled solution."""
    return compact(row.problem.text), compact(row.solution.text)


def same_words(row: LabeledSolution, problem: str, steps: Sequence[str]) -> bool:
    """Return whether a labelled solution reads as another one, as far as a tokenizer lets texts be.

    Some tokenizers do not give back every character, such as marks and wide letters.
    """
    pairs = ((row.problem.text, problem), (row.solution.text, " ".join(steps)))
    return all(compact(leak_key(text)) == compact(leak_key(other)) for text, other in pairs)


def given_alone(rows: Sequence[LabeledSolution]) -> dict[str, LabeledSolution]:
    """Return each given solution whose problem has no other, by the id of its problem.

    An id names a solution only there: sampled ones of the same problem are other solutions.
    """
    count = Counter(row.problem.id for row in rows)
    return {
        row.problem.id: row
        for row in rows
        if count[row.problem.id] == 1 and row.solution.origin == "given"
    }


def to_labelled(index: int | None, given: Sequence[str], labelled: Sequence[str]) -> int | None:
    """Return the index, in the labelled solution, of a step of the given one; the labelled steps
    may end later.

    Args:
        index: index of a given step; None stays None.
        given: texts of the steps as they were given.
        labelled: texts of the steps that were labelled, moved to token ends.
    """
    if index is None or (same := _ends(given)) == (ends := _ends(labelled)):
        return index
    return min(bisect_right(ends, max(same[index] - 1, 0)), len(ends) - 1)


def to_given(index: int | None, labelled: Sequence[str], given: Sequence[str]) -> int | None:
    """Return the index, in the given solution, of a step of the labelled one; see `to_labelled`."""
    if index is None or (own := _ends(labelled)) == (ends := _ends(given)):
        return index
    return min(bisect_right(ends, own[index - 1] if index else 0), len(ends) - 1)


def _ends(steps: Sequence[str]) -> list[int]:
    """Return the number of characters up to the end of each step, whitespace not counted."""
    return list(accumulate(len(compact(step)) for step in steps))
