"""Read solutions that a user gives to be labelled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from mclabel.data.problems import file_rows
from mclabel.errors import DataError
from mclabel.labeling.scheduler import GivenSolution
from mclabel.records import Problem


def read_solutions(path: str, problems: Iterable[Problem]) -> dict[str, tuple[GivenSolution, ...]]:
    """Given solutions by problem id, in the order of the file.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.csv` file. A row has `problem_id`, or the
            problem's text as `problem`; and `solution` (text, split at newlines), or `steps`
            (list of texts, joined by newlines).
        problems: that the solutions answer; all of them get at least one solution.

    Raises:
        DataError: a row is malformed or answers an unknown problem; a problem has no solution.
    """
    by_text = {problem.text: problem.id for problem in problems}
    ids = {problem.id: None for problem in problems}  # in their order
    given: dict[str, list[GivenSolution]] = defaultdict(list)
    for place, row in file_rows(Path(path)):
        identity = row.get("problem_id") or by_text.get(str(row.get("problem")))
        if identity not in ids:
            raise DataError(
                f"{place}: answers no known problem (problem_id={row.get('problem_id')!r}). Give "
                "problem_id, or problem with the exact text of one in problems.source"
            )
        given[str(identity)].append(solution_of(row, place))
    if missing := [identity for identity in ids if identity not in given]:
        raise DataError(
            f"{path}: no solution for {len(missing)} of {len(ids)} problems, the first "
            f"being {missing[0]!r}"
        )
    return {identity: tuple(solutions) for identity, solutions in given.items()}


def solution_of(row: Mapping[str, Any], place: str) -> GivenSolution:
    """The solution in a row that has `solution` or `steps`.

    Raises:
        DataError: it has neither, or one that is empty; `place` names the row.
    """
    steps = row.get("steps")
    if steps is not None:
        if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
            raise DataError(f"{place}: steps must be a list of texts, at least one")
        lines = [step + "\n" for step in steps[:-1]] + [steps[-1]]
        return GivenSolution(text="".join(lines), step_ends=tuple(accumulate(map(len, lines))))
    text = row.get("solution")
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{place}: needs a solution (text) or steps (list of texts)")
    return GivenSolution(text=text)
