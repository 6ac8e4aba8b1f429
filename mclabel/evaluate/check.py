"""Grades a JSON Lines file in which each line has an answer and a gold answer.

Lines that cannot be read are reported and left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from mclabel.answers import Grade, default_checker, extract_answer
from mclabel.answers.golds import InvalidGold, choose_best_grade, list_acceptable_answers, read_gold
from mclabel.core.errors import DataError
from mclabel.data.readers.rows import TOO_LARGE, read_bounded_lines
from mclabel.run.outputs import prepare_output_file


@dataclass(kw_only=True)
class CheckReport:
    """Counts and duration of grading a file."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Number of graded pairs of an answer and a gold answer, by verdict."""
    num_bad_lines: int = 0
    """Number of lines that were left out because they cannot be read."""
    seconds: float = 0.0
    """Duration of the grading, in seconds."""

    @property
    def num_graded_pairs(self) -> int:
        """Number of pairs that were graded."""
        return sum(self.verdicts.values())


def check_file(source: str, out: str | None, *, on_bad_line: Callable[[str], None]) -> CheckReport:
    """Grade every line of a JSON Lines file, and write each line with its grade.

    Args:
        source: path of the file. A line has `gold`, in any form that data sets use, and either
            `answer` or `completion`. `"truncated": true` marks a truncated completion. Other fields
            are copied to the output.
        out: path of the output; None writes to standard output. Each line gets the fields
            `verdict`, `reason`, `layer` and, if it has a completion, `answer`.
        on_bad_line: function that is called with the location and the fault of each bad line.

    Raises:
        DataError: the file does not exist, or is also the output.
    """
    path = Path(source)
    if not path.is_file():
        raise DataError(f"{source}: no such file. Give an existing .jsonl file")
    if out is not None and Path(out).resolve() == path.resolve():
        raise DataError(f"{out}: must not be the input file. Give another --out")
    if out:
        prepare_output_file(out, "--out ")
    report = CheckReport()
    start = time.perf_counter()
    target = Path(out).open("w", encoding="utf-8") if out else nullcontext(sys.stdout)  # noqa: SIM115
    with path.open("rb") as lines, target as written:
        rows = _iter_valid_rows(
            source, enumerate(read_bounded_lines(lines), 1), report, on_bad_line
        )
        for row, grade in _iter_graded_rows(rows):
            report.verdicts[grade.verdict.value] += 1
            row |= {"verdict": grade.verdict, "reason": grade.reason, "layer": grade.layer}
            written.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    report.seconds = time.perf_counter() - start
    return report


def _iter_valid_rows(
    source: str,
    lines: Iterator[tuple[int, bytes | None]],
    report: CheckReport,
    on_bad_line: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    for number, line in lines:
        if line is not None and not line.strip():
            continue
        row = TOO_LARGE.detail if line is None else _parse_row_or_fault(line)
        if isinstance(row, str):
            report.num_bad_lines += 1
            on_bad_line(f"{source}, line {number}: {row}")
        else:
            yield row


def _parse_row_or_fault(line: bytes) -> dict[str, Any] | str:
    """Return the JSON object in a line, or a message that says why the line cannot be graded."""
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"is not valid UTF-8 ({error.reason} at byte {error.start})"
    except (ValueError, RecursionError) as error:
        return f"is not valid JSON ({error})"
    if not isinstance(row, dict):
        return (
            f"is a JSON {type(row).__name__}, but must be an object with gold, and answer or "
            "completion"
        )
    for name in ("answer", "completion"):
        if name in row and not isinstance(row[name], str):
            return f"{name} must be a string, but is of type {type(row[name]).__name__}"
    if "gold" not in row:
        return "has no gold, but must have one"
    golds = parse_golds_or_fault(row["gold"])
    if isinstance(golds, str):
        return f"gold {golds}"
    if "answer" not in row and "completion" not in row:
        return "has neither answer nor completion, but must have one of them"
    return row


def parse_golds_or_fault(value: Any) -> tuple[str, ...] | str:
    """Return the gold answers in a value; an answer that equals any of them is right.

    For an invalid value, return a predicate that states its fault, such as "must be a string".
    """
    gold = read_gold(value)
    if isinstance(gold, InvalidGold):
        return gold.detail
    return (
        list_acceptable_answers(gold)
        or "must be a string, a number or a list of them, is an object"
    )


def _iter_graded_rows(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Grade]]:
    """Yield rows with their grades, in the order of the rows.

    Pairs that are quickly graded do not wait for pairs that need a slow comparison.
    """
    checker = default_checker()
    waiting: deque[tuple[dict[str, Any], tuple[str, ...]]] = deque()

    def iter_pairs() -> Iterator[tuple[str | None, str]]:
        for row in rows:
            if "completion" in row:
                row["answer"] = extract_answer(
                    row["completion"], truncated=bool(row.get("truncated"))
                )
            golds = parse_golds_or_fault(row["gold"])
            assert not isinstance(golds, str)  # `_parse_row_or_fault` has rejected such rows
            waiting.append((row, golds))
            for gold in golds:
                yield row["answer"], gold

    grades = checker.grade_each(iter_pairs())
    for first in grades:
        row, golds = waiting.popleft()
        grade = choose_best_grade([first, *islice(grades, len(golds) - 1)])
        # Grade the completion, since a guessed answer is marked and several boxes are compared. The
        # grades of other completions are cached.
        if "completion" in row:
            cut = bool(row.get("truncated"))
            graded = [
                checker.grade_completion(row["completion"], gold, truncated=cut) for gold in golds
            ]
            grade = choose_best_grade([candidate for _, candidate in graded])
            row["answer"] = next(answer for answer, candidate in graded if candidate is grade)
        yield row, grade
