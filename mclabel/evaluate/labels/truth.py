"""Finds the true first errors of labelled solutions, with which labels are compared.

The truth is computed exactly, judged by people, or taken from the same solutions in another run.
Steps of labelled solutions end at token boundaries, and people's files join steps in different
ways. So texts are compared without whitespace, and steps are matched by their characters. A given
solution is one that a user provided, so it was not sampled by a policy.
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
from mclabel.data.leaks import normalize_for_leaks
from mclabel.data.readers.judged import JudgedSolution, list_step_texts
from mclabel.evaluate.labels.quality import find_exact_first_error, has_exact_truth

TruthKind = Literal["exact", "processbench", "prm800k", "run", "people"]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The true first errors of labelled solutions, from one source."""

    kind: TruthKind
    first_errors: Mapping[str, int | None]
    """Index of the true first error by solution id, from 0; None means no error. Solutions that the
    source does not know are missing."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Number of solutions of the run that a drawn solution represents, by solution id. A missing
    solution represents only itself."""

    def select_known_rows(self, rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
        """Return the solutions whose truth is known."""
        return [row for row in rows if row.solution.id in self.first_errors]

    def first_error(self, row: LabeledSolution) -> int | None:
        """Return the 0-based index of the true first error of a solution; None means no error.

        Raises:
            KeyError: the truth of the solution is not known.
        """
        return self.first_errors[row.solution.id]

    def weight(self, row: LabeledSolution) -> float:
        """Return the number of solutions of the run that a solution represents."""
        return self.weights.get(row.solution.id, 1.0)


def find_exact_truth(rows: Sequence[LabeledSolution]) -> Truth:
    """Return the true first errors of solutions of the built-in domains, which are computed.

    Raises:
        DataError: a solution is of another domain; the message has its id.
    """
    if other := next((row for row in rows if not has_exact_truth([row])), None):
        raise DataError(
            f"solution {other.solution.id} of problem {other.problem.id}: its problem carries no "
            "program, so it does not belong to a built-in domain. Give --truth processbench:FILE, "
            "prm800k:FILE or run:FOLDER"
        )
    return Truth(
        kind="exact", first_errors={row.solution.id: find_exact_first_error(row) for row in rows}
    )


def make_truth_from_judgements(
    kind: TruthKind, rows: Sequence[LabeledSolution], judged: Sequence[JudgedSolution]
) -> Truth:
    """Return the true first errors of solutions that people or another run have judged.

    A labelled solution and a judged one match if the texts of problem and solution are equal apart
    from whitespace. If no text matches, a given solution matches the judged solution that has the
    id of its problem, provided that the problem has no other solution and the numbers of steps and
    the words are equal. If several judged solutions match, the first one with the solution's id
    counts, or else the first one. If a judgement accepts several first errors, the truth is the
    labelled first error if it is among them.

    Args:
        kind: source of the truth, which the result and error messages name.
        rows: labelled solutions.
        judged: judged solutions.

    Raises:
        DataError: a judged solution has the id of a given solution's problem, but another text.
    """
    by_key: dict[tuple[str, str], list[JudgedSolution]] = defaultdict(list)
    for judgement in judged:
        by_key[make_solution_key(judgement.problem, judgement.steps)].append(judgement)
    by_id = {judgement.id: judgement for judgement in judged}
    sole_solutions = find_sole_given_solutions(rows)
    first_errors: dict[str, int | None] = {}
    weights: dict[str, float] = {}
    others: list[LabeledSolution] = []
    for row in rows:
        if not row.steps:
            continue
        named = by_id.get(row.problem.id) if row.problem.id in sole_solutions else None
        if same := by_key.get(make_labelled_solution_key(row)):
            judgement = next((s for s in same if s.id == row.solution.id), same[0])
            mine = list_step_texts(row)
            weights[row.solution.id] = judgement.weight
            accepted = {
                convert_to_labelled_step(error, judgement.steps, mine)
                for error in judgement.other_first_errors
            }
            first_errors[row.solution.id] = _prefer_accepted_label(
                row,
                convert_to_labelled_step(judgement.first_error, judgement.steps, mine),
                accepted,
            )
        elif named is not None and not has_same_words(row, named.problem, named.steps):
            others.append(row)
        elif named is not None and len(named.steps) == len(row.steps):
            first_errors[row.solution.id] = _prefer_accepted_label(
                row, named.first_error, named.other_first_errors
            )
    if others:
        raise DataError(
            f"--truth {kind}: has other texts for {len(others)} of the {len(rows)} solutions, the "
            f"first being {others[0].solution.id} of problem {others[0].problem.id}. An id must "
            "name the same problem and solution in both places. Give the file whose solutions were "
            "labelled, or give different solutions different ids"
        )
    return Truth(kind=kind, first_errors=first_errors, weights=weights)


def _prefer_accepted_label(
    row: LabeledSolution, judged_error: int | None, accepted_errors: Set[int | None]
) -> int | None:
    return row.first_error if row.first_error in accepted_errors else judged_error


def check_same_problem_texts(
    rows: Sequence[LabeledSolution], others: Sequence[LabeledSolution], truth_name: str
) -> None:
    """Raise an error if problems of two runs have the same id but different texts.

    The rollouts of such problems would be confused.

    Args:
        rows: labelled solutions of the run that is measured.
        others: labelled solutions of the run that is the truth.
        truth_name: name of the latter run, for the message.

    Raises:
        DataError: a problem has another text in the other run; the message has its first solution.
    """
    texts = {row.problem.id: row.problem.text for row in others}
    differ = [r for r in rows if texts.get(r.problem.id, r.problem.text) != r.problem.text]
    if differ:
        raise DataError(
            f"--truth run:{truth_name}: has other texts for the problems of {len(differ)} of the "
            f"{len(rows)} solutions, the first being {differ[0].solution.id} of problem "
            f"{differ[0].problem.id}. Give a run over the same problems"
        )


def remove_all_whitespace(text: str) -> str:
    """Return `text` without whitespace."""
    return "".join(text.split())


def make_solution_key(problem: str, steps: Sequence[str]) -> tuple[str, str]:
    """Return the texts of a problem and of its solution, both without whitespace.

    The pair is the same for every division of the solution into steps.
    """
    return remove_all_whitespace(problem), remove_all_whitespace("".join(steps))


def make_labelled_solution_key(row: LabeledSolution) -> tuple[str, str]:
    """Return the texts of a labelled solution's problem and of the solution, without whitespace."""
    return remove_all_whitespace(row.problem.text), remove_all_whitespace(row.solution.text)


def has_same_words(row: LabeledSolution, problem: str, steps: Sequence[str]) -> bool:
    """Return whether a labelled solution has the same words as a given problem and solution.

    Texts are normalised before they are compared, since some tokenizers change characters, such as
    marks and wide letters.
    """
    pairs = ((row.problem.text, problem), (row.solution.text, " ".join(steps)))
    return all(
        remove_all_whitespace(normalize_for_leaks(text))
        == remove_all_whitespace(normalize_for_leaks(other))
        for text, other in pairs
    )


def find_sole_given_solutions(rows: Sequence[LabeledSolution]) -> dict[str, LabeledSolution]:
    """Return the given solutions that are the only solutions of their problems, by problem id.

    For other problems the problem id does not identify a solution, since sampled solutions share
    the id.
    """
    count = Counter(row.problem.id for row in rows)
    return {
        row.problem.id: row
        for row in rows
        if count[row.problem.id] == 1 and row.solution.origin == "given"
    }


def convert_to_labelled_step(
    index: int | None, given: Sequence[str], labelled: Sequence[str]
) -> int | None:
    """Convert the index of a given step to the index of the labelled step with the same text.

    Args:
        index: index of a given step, from 0; None stays None.
        given: texts of the steps as they were given.
        labelled: texts of the labelled steps, which may end later, at token boundaries.
    """
    if index is None or (same := _count_characters_to_step_ends(given)) == (
        ends := _count_characters_to_step_ends(labelled)
    ):
        return index
    return min(bisect_right(ends, max(same[index] - 1, 0)), len(ends) - 1)


def convert_to_given_step(
    index: int | None, labelled: Sequence[str], given: Sequence[str]
) -> int | None:
    """Convert the index of a labelled step to the index of the given step with the same text.

    Args:
        index: index of a labelled step, from 0; None stays None.
        labelled: texts of the labelled steps, which may end later, at token boundaries.
        given: texts of the steps as they were given.
    """
    if index is None or (own := _count_characters_to_step_ends(labelled)) == (
        ends := _count_characters_to_step_ends(given)
    ):
        return index
    return min(bisect_right(ends, own[index - 1] if index else 0), len(ends) - 1)


def _count_characters_to_step_ends(steps: Sequence[str]) -> list[int]:
    """Return the number of characters up to the end of each step, without whitespace."""
    return list(accumulate(len(remove_all_whitespace(step)) for step in steps))
