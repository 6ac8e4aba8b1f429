"""Read solutions that a user gives to be labelled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import GivenSolution, Problem
from mclabel.data.readers.left_out import RowRejects
from mclabel.data.readers.rows import LONE_SURROGATES, is_unicode, scan_rows
from mclabel.data.readers.selected import Selected
from mclabel.run.shards.rejects import Reject


@dataclass(frozen=True, kw_only=True)
class Given:
    """Solutions to be labelled, and what could not be used."""

    by_problem: Mapping[str, tuple[GivenSolution, ...]]
    """Solutions by problem id, in the order of the file; no entry is empty."""
    rejects: tuple[Reject, ...]
    """Rows that cannot be used, and problems without a solution."""


def read_solutions(
    path: str,
    problems: Iterable[Problem],
    *,
    selected: Selected | None = None,
    strict: bool = False,
) -> Given:
    """Given solutions by problem id.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.csv` file, or the URL of one. A row has
            `problem_id`, or the problem's text as `problem` (both must mean the same problem); and
            `solution` (text, split at newlines), or `steps` (list of texts, joined by newlines).
        problems: that the solutions answer.
        selected: which rows are wanted, by their numbers; None for all. Problems without any are
            not asked about.
        strict: whether a row that cannot be used, or a problem without a solution, is an error.

    Raises:
        DataError: the file cannot be read, no problem has a solution, or the selected rows are
            others; if strict, what `strict` forbids.
    """
    texts = {problem.id: problem.text for problem in problems}  # in their order
    by_text = {text: identity for identity, text in texts.items()}
    given: dict[str, list[GivenSolution]] = defaultdict(list)
    left_out = RowRejects(path, strict=strict)
    num_given: Counter[str] = Counter()
    names: list[str] = []
    for number, row in scan_rows(path):
        wanted = selected is None or str(number) in selected.texts
        if not isinstance(row, Mapping):
            if wanted:
                left_out.add(row if isinstance(row, RejectReason) else _NO_OBJECT, number)
            continue
        named = row.get("problem_id")
        identity = by_text.get(str(row.get("problem"))) if named in (None, "") else str(named)
        if not is_unicode(row):
            found: GivenSolution | RejectReason = RejectReason("not_utf8", LONE_SURROGATES)
        else:
            found = solution_in(row) if identity in texts else _unknown(row)
            asked = row.get("problem")
            if identity in texts and isinstance(asked, str):
                found = found if _same(asked, texts[identity]) else _other_problem(identity)
        if isinstance(found, RejectReason):
            if wanted:
                left_out.add(found, number, identity)
            continue
        assert identity is not None  # else the problem is unknown
        if selected is not None:
            found = replace(found, index=num_given[identity])
            num_given[identity] += 1
            if not wanted:
                continue
            name = str(number)
            selected.check_text(name, str(row.get("problem")), found.text)
            found = replace(found, selection=selected.selection(name))
            names.append(name)
        given[identity].append(found)
    if selected is not None:
        names += [str(one.row) for one in left_out.found]  # these have their reasons
        selected.check_found(names, path)
    for identity in texts:
        if identity not in given and selected is None:
            left_out.add(
                RejectReason("no_solution", f"no solution for problem {identity!r}"), None, identity
            )
    if not given:
        raise DataError(
            f"{path}: no solution for any of {len(texts)} problems; {left_out.found[0].detail}"
        )
    return Given(
        by_problem={identity: tuple(solutions) for identity, solutions in given.items()},
        rejects=tuple(left_out.found),
    )


_NO_OBJECT = RejectReason("not_an_object", "must be an object with a problem and a solution")


def _unknown(row: Mapping[str, Any]) -> RejectReason:
    return RejectReason(
        "unknown_problem",
        f"answers no known problem (problem_id={row.get('problem_id')!r}). Give problem_id, or "
        "problem with the exact text of one in problems.source",
    )


def _same(one: str, other: str) -> bool:
    """Whether texts are the same, whatever their whitespace."""
    return one.split() == other.split()


def _other_problem(identity: str) -> RejectReason:
    return RejectReason(
        "other_problem",
        f"problem_id={identity!r} has another text in problems.source than this row's problem. "
        "Give the id of the problem that the solution answers, or leave problem_id out",
    )


def solution_of(row: Mapping[str, Any], place: str) -> GivenSolution:
    """The solution in a row that has `solution` or `steps`.

    Raises:
        DataError: it has neither, or one that is empty; `place` names the row.
    """
    found = solution_in(row)
    if isinstance(found, RejectReason):
        raise DataError(f"{place}: {found.detail}")
    return found


def solution_in(row: Mapping[str, Any]) -> GivenSolution | RejectReason:
    """The solution in a row that has `solution` or `steps`, or why it cannot be used."""
    steps = row.get("steps")
    if steps is not None:
        if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
            return RejectReason("bad_solution", "steps must be a list of texts, at least one")
        lines = [s if s.endswith("\n") else s + "\n" for s in steps[:-1]] + [steps[-1]]
        return GivenSolution(text="".join(lines), step_ends=tuple(accumulate(map(len, lines))))
    text = row.get("solution")
    if not isinstance(text, str) or not text.strip():
        return RejectReason("bad_solution", "needs a solution (text) or steps (list of texts)")
    return GivenSolution(text=text)
