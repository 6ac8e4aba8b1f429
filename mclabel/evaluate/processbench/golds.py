"""ProcessBench's solutions as problems and solutions to label: their gold answers are joined."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mclabel.answers import answer_key, extract_answer
from mclabel.core.errors import DataError
from mclabel.data.readers.problems import read_problems
from mclabel.evaluate.labels.truth import compact
from mclabel.evaluate.processbench.job import read_splits
from mclabel.run.outputs import output_file
from mclabel.run.shards.rejects import Reject


@dataclass(frozen=True, kw_only=True)
class GoldReport:
    """Solutions that were given the gold answer of their problem."""

    num_from_files: int
    num_from_solutions: int
    """Whose gold is the boxed answer of a solution marked as right."""
    without: tuple[str, ...]
    """Ids of solutions whose gold is not known, left out."""
    rejects: tuple[Reject, ...]
    """Rows of the files that cannot be used."""


def join_golds(
    files: Sequence[str], golds: Sequence[str], out: str, *, strict: bool = False
) -> GoldReport:
    r"""Write ProcessBench's solutions as problems and solutions that a labelling job reads.

    A row has `problem`, `answer` and `steps`. The gold answer of a problem is that of the same text
    in a file of golds; failing that, what a solution of it boxes whose final answer is marked as
    right, if all of them agree.

    Args:
        files: splits of ProcessBench.
        golds: files of problems with answers, or `hf:NAME`.
        out: JSON Lines file, written whole.
        strict: whether a row that cannot be used is an error; else it is left out.

    Raises:
        DataError: a file cannot be used, or no gold is known.
    """
    output_file(out, "-o ")
    known = {compact(p.text): p.answer for source in golds for p in read_problems(source)}
    read = read_splits(files, strict=strict)
    judged = [one for rows in read.solutions.values() for one in rows]
    boxed: dict[str, dict[str, str]] = defaultdict(dict)
    for one in judged:
        marked = bool(one.answer_right) and r"\boxed" in one.steps[-1]
        if marked and (answer := extract_answer(one.steps[-1])):
            boxed[compact(one.problem)].setdefault(answer_key(answer), answer)
    agreed = {text: next(iter(found.values())) for text, found in boxed.items() if len(found) == 1}
    lines, without, num_from_files = [], [], 0
    for one in judged:
        text = compact(one.problem)
        answer = known.get(text, agreed.get(text))
        if answer is None:
            without.append(one.id)
            continue
        num_from_files += text in known
        lines.append(
            json.dumps(
                {"problem": one.problem, "answer": answer, "steps": one.steps}, ensure_ascii=False
            )
        )
    if not lines:
        raise DataError(
            f"{', '.join(files)}: no problem has a gold answer. Pass files of problems with "
            "answers by --golds"
        )
    partial = Path(f"{out}.partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.rename(out)
    return GoldReport(
        num_from_files=num_from_files,
        num_from_solutions=len(lines) - num_from_files,
        without=tuple(without),
        rejects=tuple(one for found in read.rejects.values() for one in found),
    )
