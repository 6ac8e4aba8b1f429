"""Score a file of solutions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

from mclabel.data.rows import file_rows
from mclabel.data.solutions import solution_of
from mclabel.errors import DataError


def score_file(
    prm: str,
    solutions: str,
    out: str | None,
    *,
    device: str,
    url: str | None = None,
    form: str = "mclabel",
) -> Iterator[str]:
    """The file's rows as JSON lines with `scores` and their aggregations, in order.

    Args:
        prm: folder of a PRM.
        solutions: file with `problem`, and `solution` or `steps`.
        out: written whole at the end; without it the lines are given back.
        device: torch device.
        url: of a server of the same PRM, which then computes the scores.
        form: `mclabel`, or a format of `mclabel.prm.adapters`.

    Raises:
        DataError: the file, or a row, cannot be used.
    """
    from mclabel.prm.adapters import ModelFormat, load_adapted
    from mclabel.prm.aggregate import AGGREGATIONS
    from mclabel.prm.score import PRM, check_scores
    from mclabel.prm.served import ServedPRM

    rows, problems, steps = [], [], []
    for place, row in file_rows(solutions):
        if not isinstance(row.get("problem"), str):
            raise DataError(f"{place}: needs a problem (text)")
        given = solution_of(row, place)
        rows.append((place, row))
        problems.append(row["problem"])
        steps.append(
            given.text
            if given.step_ends is None
            else [given.text[a:b] for a, b in pairwise((0, *given.step_ends))]
        )
    if not rows:
        raise DataError(f"{solutions}: holds no solutions")
    places = [place for place, _ in rows]
    if form != "mclabel":
        found = load_adapted(prm, cast(ModelFormat, form), device=device).score(problems, steps)
    else:
        scorer = PRM.load(prm, device=device) if url is None else ServedPRM.connect(url, prm)
        found = scorer.score_encoded(
            [
                scorer.encoder.text(problem, step, place)
                for problem, step, place in zip(problems, steps, places, strict=True)
            ]
        )
    check_scores(prm, found, places)
    lines = []
    for (_, row), scores in zip(rows, found, strict=True):
        added = {name: how(scores) for name, how in AGGREGATIONS.items()}
        lines.append(json.dumps({**row, "scores": scores, **added}, ensure_ascii=False))
    if out is None:
        yield from lines
        return
    partial = Path(f"{out}.partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.rename(out)
    yield f"{len(lines)} solutions scored, written to {out}"
