"""ProcessBench for a PRM or for a run's labels, and its solutions as problems to label."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mclabel.answers import answer_key, extract_answer
from mclabel.data.judged import JudgedSolution, read_processbench
from mclabel.data.problems import read_problems
from mclabel.data.shards import read_labels
from mclabel.data.solutions import solution_of
from mclabel.data.store import Store
from mclabel.edge.eval_labels import out_folder
from mclabel.errors import ConfigError, DataError
from mclabel.evaluation.matching import (
    compact,
    given_alone,
    row_key,
    row_steps,
    solution_key,
    to_given,
)
from mclabel.evaluation.processbench import (
    THRESHOLD_SPLIT,
    ProcessBenchResult,
    best_threshold,
    first_below,
    processbench,
)
from mclabel.evaluation.truth import says_where
from mclabel.report.files import json_text
from mclabel.report.grid import markdown
from mclabel.report.processbench_table import processbench_grid

Splits = Mapping[str, Sequence[JudgedSolution]]
Predictions = Mapping[str, Mapping[str, int | None]]


def processbench_of_prm(
    files: Sequence[str],
    model: str,
    *,
    threshold: float | None,
    device: str,
    out: str | None,
    seed: int,
    on_score: Callable[[int, int], None],
) -> ProcessBenchResult:
    """Measure a PRM; solutions that it cannot read are left out, and named.

    Args:
        files: the splits, known by their names without `processbench_`.
        model: folder of a PRM.
        threshold: a step scored under it is wrong; None chooses it on GSM8K.
        device: torch device.
        out: folder for processbench.json, processbench.md and predictions.jsonl.
        seed: of the bootstrap.
        on_score: called with solutions scored and in all.

    Raises:
        ConfigError: an ORM, a PRM without its step token, or no split to choose a threshold on.
        DataError: a file cannot be used, or the PRM reads none of its solutions.
    """
    from mclabel.prm.score import PRM, check_scores

    splits = read_splits(files)
    if threshold is None and THRESHOLD_SPLIT not in splits:
        raise ConfigError(
            f"the threshold is chosen on the split {THRESHOLD_SPLIT}, which is not among "
            f"{', '.join(splits)}. Give its file, too, or --threshold"
        )
    prm = PRM.load(model, device=device)
    if prm.manifest.kind == "orm":
        raise ConfigError(f"{model}: an ORM: only its last score means something. Give a PRM")
    readable, refused = [], []
    for name, rows in splits.items():
        for row in rows:
            given = solution_of({"steps": list(row.steps)}, row.id)
            steps = [given.text[a:b] for a, b in pairwise((0, *(given.step_ends or ())))]
            try:
                readable.append((name, row.id, prm.encoder.text(row.problem, steps, row.id)))
            except DataError as error:
                refused.append(str(error))
    if not readable:
        raise DataError(f"{model}: can read none of the solutions; the first: {refused[0]}")
    scored = prm.score_encoded([one for _, _, one in readable], on_progress=on_score)
    check_scores(model, scored, [identity for _, identity, _ in readable])
    scores: dict[str, dict[str, list[float]]] = {name: {} for name in splits}
    for (name, identity, _), steps_scores in zip(readable, scored, strict=True):
        scores[name][identity] = steps_scores
    if threshold is None:
        threshold = best_threshold(splits[THRESHOLD_SPLIT], scores[THRESHOLD_SPLIT])
    predictions = {
        name: {identity: first_below(one, threshold) for identity, one in found.items()}
        for name, found in scores.items()
    }
    result = processbench(splits, predictions, threshold=threshold, seed=seed)
    _write(result, splits, predictions, out)
    return result


def processbench_of_labels(
    files: Sequence[str], labels: str, *, out: str | None, seed: int
) -> ProcessBenchResult:
    """Measure the labels of a run on ProcessBench's solutions; those it lacks are left out, named.

    A solution is found by its text; failing that, a given one by the id of its problem, if that
    has no other solution and the steps are as many. One that could not be graded, or of which only
    the answer was graded, has no label.

    Raises:
        DataError: a file cannot be used, or the run holds none of the solutions.
    """
    splits = read_splits(files)
    rows = [row for row in read_labels(Store(labels)) if says_where(row)]
    by_key = {row_key(row): row for row in reversed(rows)}
    alone = given_alone(rows)
    predictions: dict[str, dict[str, int | None]] = {name: {} for name in splits}
    for name, judged in splits.items():
        for one in judged:
            if (row := by_key.get(solution_key(one.problem, one.steps))) is not None:
                predictions[name][one.id] = to_given(row.first_error, row_steps(row), one.steps)
            elif (row := alone.get(one.id)) is not None and len(row.steps) == len(one.steps):
                predictions[name][one.id] = row.first_error
    if not any(predictions.values()):
        first = next(iter(splits.values()))[0].id
        raise DataError(
            f"{labels}: none of its {len(rows)} solutions with a verdict is in {', '.join(files)}; "
            f"looked for {first!r} first. Label them: configs/label/processbench.yaml says how"
        )
    result = processbench(splits, predictions, seed=seed)
    _write(result, splits, predictions, out)
    return result


def read_splits(files: Sequence[str]) -> dict[str, list[JudgedSolution]]:
    """The splits by name: that of the file, without `processbench_`."""
    splits: dict[str, list[JudgedSolution]] = {}
    for file in files:
        name = Path(file).stem.removeprefix("processbench_")
        if name in splits:
            raise ConfigError(f"{file}: a second split of the name {name}")
        splits[name] = read_processbench(file)
    return splits


@dataclass(frozen=True, kw_only=True)
class GoldReport:
    """Solutions that were given the gold answer of their problem."""

    num_from_files: int
    num_from_solutions: int
    """Whose gold is the boxed answer of a solution marked as right."""
    without: tuple[str, ...]
    """Ids of solutions whose gold is not known, left out."""


def join_golds(files: Sequence[str], golds: Sequence[str], out: str) -> GoldReport:
    r"""Write ProcessBench's solutions as problems and solutions that a labelling job reads.

    A row has `problem`, `answer` and `steps`. The gold answer of a problem is that of the same text
    in a file of golds; failing that, what a solution of it boxes whose final answer is marked as
    right, if all of them agree.

    Args:
        files: splits of ProcessBench.
        golds: files of problems with answers, or `hf:NAME`.
        out: JSON Lines file, written whole.

    Raises:
        DataError: a file cannot be used, or no gold is known.
    """
    known = {compact(p.text): p.answer for source in golds for p in read_problems(source)}
    judged = [one for rows in read_splits(files).values() for one in rows]
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
            f"{', '.join(files)}: the gold answer of no problem is known. Give files of problems "
            "with their answers with --golds"
        )
    partial = Path(f"{out}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.rename(out)
    return GoldReport(
        num_from_files=num_from_files,
        num_from_solutions=len(lines) - num_from_files,
        without=tuple(without),
    )


def _write(
    result: ProcessBenchResult, splits: Splits, predictions: Predictions, out: str | None
) -> None:
    if out is None:
        return
    folder = out_folder(out)
    (folder / "processbench.json").write_text(json_text(result), encoding="utf-8")
    (folder / "processbench.md").write_text(markdown([processbench_grid(result)]), encoding="utf-8")
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for name, rows in splits.items():
            for row in rows:
                if row.id in predictions[name]:
                    found = {
                        "split": name,
                        "id": row.id,
                        "label": -1 if row.first_error is None else row.first_error,
                        "prediction": _exported(predictions[name][row.id]),
                    }
                    file.write(json.dumps(found, ensure_ascii=False) + "\n")


def _exported(index: int | None) -> int:
    return -1 if index is None else index
