"""Measures a PRM or a run's labels on ProcessBench, and prepares ProcessBench for labelling.

Each file of ProcessBench is one split. `add_golds_to_files` adds the gold answers that
labelling needs and that ProcessBench lacks.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from mclabel.answers import answer_key, extract_answer
from mclabel.core.errors import ConfigError, DataError, shorten_detail
from mclabel.core.plain_files import write_atomically
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.readers.judged import JudgedSolution, list_step_texts, read_processbench
from mclabel.data.readers.problems import read_problems
from mclabel.data.readers.solutions import RowRejects, require_solution
from mclabel.evaluate.labels.job import check_out_folder, make_out_folder
from mclabel.evaluate.labels.truth import (
    convert_to_given_step,
    find_sole_given_solutions,
    has_same_words,
    make_labelled_solution_key,
    make_solution_key,
    remove_all_whitespace,
)
from mclabel.evaluate.processbench.figures import (
    THRESHOLD_SPLIT,
    LeftOutReason,
    LeftOutReasons,
    ProcessBenchResult,
    make_processbench_grid,
    measure_processbench,
)
from mclabel.prm.scoring.manifest import (
    find_best_threshold,
    find_first_score_below,
    hash_weights,
    write_provenance,
)
from mclabel.run.outputs import prepare_output_file
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.store import Store
from mclabel.show.figures import render_markdown
from mclabel.show.texts import format_json

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.score import PRM


LEFT_OUT = "left_out.jsonl"
"""Name of the output file that lists the solutions without a prediction, with the reasons."""
logger = logging.getLogger(__name__)
Splits = Mapping[str, Sequence[JudgedSolution]]
"""Solutions by name of the split."""
Predictions = Mapping[str, Mapping[str, int | None]]
"""0-based index of the predicted first error by split and solution id; None means no error."""


def measure_prm_on_processbench(
    files: Sequence[str],
    model: str,
    *,
    threshold: float | None,
    device: str,
    out: str | None,
    seed: int,
    on_score: Callable[[int, int], None],
    trust_remote_code: bool = False,
    strict: bool = False,
) -> ProcessBenchResult:
    """Measure a PRM on ProcessBench. Solutions that it cannot read are left out and listed.

    Args:
        files: files of the splits. A file's name is the name of the split, with or without the
            prefix `processbench_`.
        model: folder of a PRM.
        threshold: threshold of the scores: a step with a lower score is wrong. None chooses the
            threshold on GSM8K.
        device: torch device.
        out: folder for processbench.json, processbench.md, predictions.jsonl, left_out.jsonl,
            provenance.json.
        seed: seed of the bootstrap.
        on_score: function that is called with the number of scored solutions and of all solutions.
        trust_remote_code: whether Python code that comes with the PRM may run.
        strict: whether an unusable row is an error; otherwise it is left out.

    Raises:
        ConfigError: the model is an ORM, the PRM lacks its step token, or there is no split on
            which a threshold can be chosen.
        DataError: a file cannot be used, or the PRM can read no solution.
    """
    from mclabel.prm.scoring.aggregate import check_scores
    from mclabel.prm.scoring.score import PRM

    check_out_folder(out)
    read = read_splits(files, strict=strict)
    splits = read.solutions
    if threshold is None:
        _check_threshold_split(splits)
    warn_of_splits_without_f1(splits)
    prm = PRM.load(model, device=device, trust_remote_code=trust_remote_code)
    if prm.manifest.kind == "orm":
        raise ConfigError(f"{model}: is an ORM, which does not score single steps. Give a PRM")
    readable, refused = _encode_solutions(prm, splits)
    if not readable:
        name, reason = next(item for by_name in refused.values() for item in by_name.items())
        raise DataError(f"{model}: cannot score any solution; the first is {name}: {reason.detail}")
    names, identities, encoded = zip(*readable, strict=True)
    scored = prm.score_encoded(encoded, on_progress=on_score)
    check_scores(model, scored, identities)
    scores: dict[str, dict[str, list[float]]] = {name: {} for name in splits}
    for name, identity, step_scores in zip(names, identities, scored, strict=True):
        scores[name][identity] = step_scores
    if threshold is None:
        threshold = find_best_threshold(splits[THRESHOLD_SPLIT], scores[THRESHOLD_SPLIT])
    predictions = {
        name: {
            solution: find_first_score_below(own, threshold)
            for solution, own in by_solution.items()
        }
        for name, by_solution in scores.items()
    }
    result = measure_processbench(
        splits,
        predictions,
        reasons=refused,
        scores=scores,
        threshold=threshold,
        num_rejected=read.num_rejected,
        seed=seed,
    )
    write_results(result, splits, predictions, refused, read.rejects, out)
    if out is not None:
        write_provenance(
            Path(out) / "provenance.json",
            prm=model,
            weights=hash_weights(model),
            trust_remote_code=trust_remote_code,
        )
    return result


def _check_threshold_split(splits: Mapping[str, Sequence[JudgedSolution]]) -> None:
    """Raise an error if no threshold can be chosen on these splits."""
    if THRESHOLD_SPLIT not in splits:
        raise ConfigError(
            f"the threshold is chosen on the split {THRESHOLD_SPLIT}, which is not among "
            f"{', '.join(splits)}. Give the file of this split, too, or give --threshold"
        )
    if (missing := describe_missing_solutions(splits[THRESHOLD_SPLIT])) is not None:
        raise DataError(
            f"the split {THRESHOLD_SPLIT} holds no solution {missing}: the threshold is chosen by "
            "F1, which needs both. Give a file with both, or --threshold"
        )


def _encode_solutions(
    prm: PRM, splits: Splits
) -> tuple[list[tuple[str, str, EncodedSolution]], dict[str, dict[str, LeftOutReason]]]:
    """Encode the solutions for the PRM.

    Returns:
        Encoded solutions, each with its split and id. Reasons why the PRM cannot read the other
        solutions, by split and id.
    """
    from mclabel.prm.examples.encode import TooLongError

    readable: list[tuple[str, str, EncodedSolution]] = []
    refused: dict[str, dict[str, LeftOutReason]] = {name: {} for name in splits}
    for name, rows in splits.items():
        for row in rows:
            given = require_solution({"steps": list(row.steps)}, row.id)
            steps = [given.text[a:b] for a, b in pairwise((0, *(given.step_ends or ())))]
            try:
                readable.append((name, row.id, prm.encoder.encode_text(row.problem, steps, row.id)))
            except DataError as error:
                refused[name][row.id] = LeftOutReason(
                    reason_code="too_long" if isinstance(error, TooLongError) else "unreadable",
                    detail=str(error).removeprefix(f"{row.id}: "),
                )
    return readable, refused


def measure_labels_on_processbench(
    files: Sequence[str], labels: str, *, out: str | None, seed: int, strict: bool = False
) -> ProcessBenchResult:
    """Measure the labels of a run on ProcessBench's solutions.

    A solution of ProcessBench is found in the run by its text. If the text is not found, a given
    solution matches by the id of its problem, provided that the problem has no other solution in
    the run and the numbers of steps and the words are equal. A solution has no label if it could
    not be graded, or if only its answer was graded. Solutions that are not found or have no label
    are left out and listed.

    Args:
        files: files of the splits. A file's name is the name of the split, with or without the
            prefix `processbench_`.
        labels: folder or URL of the labelling run.
        out: folder for the results; None writes no files.
        seed: seed of the bootstrap.
        strict: whether an unusable row is an error; otherwise it is left out.

    Raises:
        DataError: a file cannot be used, or the run contains none of the solutions.
    """
    check_out_folder(out)
    read = read_splits(files, strict=strict)
    splits = read.solutions
    warn_of_splits_without_f1(splits)
    rows: list[LabeledSolution] = []
    undecided: list[LabeledSolution] = []
    for row in read_labels(Store(labels)):
        (rows if row.is_decided else undecided).append(row)
    by_key = {make_labelled_solution_key(row): row for row in reversed(rows)}
    sole_solutions = find_sole_given_solutions(rows)
    left_out = _MissingLabelExplainer(undecided, sole_solutions)
    predictions: dict[str, dict[str, int | None]] = {name: {} for name in splits}
    reasons: dict[str, dict[str, LeftOutReason]] = {name: {} for name in splits}
    for name, judged in splits.items():
        for solution in judged:
            if (
                labelled := by_key.get(make_solution_key(solution.problem, solution.steps))
            ) is not None:
                predictions[name][solution.id] = convert_to_given_step(
                    labelled.first_error, list_step_texts(labelled), solution.steps
                )
            elif (labelled := sole_solutions.get(solution.id)) is not None and (
                len(labelled.steps) == len(solution.steps)
                and has_same_words(labelled, solution.problem, solution.steps)
            ):
                predictions[name][solution.id] = labelled.first_error
            else:
                reasons[name][solution.id] = left_out.explain(solution)
    if not any(predictions.values()):
        first = next(iter(splits.values()))[0].id
        raise DataError(
            f"{labels}: none of its {len(rows)} solutions with a verdict is in {', '.join(files)}, "
            f"whose first solution is {first!r}. Label these files with "
            "configs/label/processbench.yaml"
        )
    result = measure_processbench(
        splits, predictions, reasons=reasons, num_rejected=read.num_rejected, seed=seed
    )
    write_results(result, splits, predictions, reasons, read.rejects, out)
    return result


class _MissingLabelExplainer:
    """Explains why solutions of ProcessBench have no label in a run."""

    def __init__(
        self, rows: Sequence[LabeledSolution], sole_solutions: Mapping[str, LabeledSolution]
    ) -> None:
        """Index solutions by text and by id.

        Args:
            rows: solutions of the run whose labels do not decide on a first error.
            sole_solutions: decided solutions that are the only solutions of their problems, by
                problem id.
        """
        self._by_key = {make_labelled_solution_key(row): row for row in reversed(rows)}
        self._by_id, self._alone = find_sole_given_solutions(rows), sole_solutions

    def explain(self, solution: JudgedSolution) -> LeftOutReason:
        """Return the reason why a judged solution has no prediction."""
        row = self._by_key.get(make_solution_key(solution.problem, solution.steps))
        named = self._by_id.get(solution.id) or self._alone.get(solution.id)
        if row is None and named is not None:
            if len(named.steps) != len(solution.steps):
                return LeftOutReason(
                    reason_code="other_steps",
                    detail=(
                        f"{len(named.steps)} steps in the run, {len(solution.steps)} in the file"
                    ),
                )
            if not has_same_words(named, solution.problem, solution.steps):
                return LeftOutReason(
                    reason_code="other_text",
                    detail="the run has this id for another problem or solution",
                )
            row = named
        if row is None:
            return LeftOutReason(
                reason_code="not_in_run",
                detail="not labelled: the problem has no gold answer (eval processbench-golds "
                "lists such problems), or the solution is in the run's rejects.jsonl",
            )
        if row.solution.outcome not in (Outcome.RIGHT, Outcome.WRONG):
            return LeftOutReason(
                reason_code="no_verdict",
                detail=f"its answer {row.solution.prediction!r} is {row.solution.outcome} compared "
                f"with the gold answer {row.problem.answer!r}",
            )
        return LeftOutReason(
            reason_code="outcome_only",
            detail=f"only the last of {len(row.steps)} steps has a label",
        )


@dataclass(frozen=True, kw_only=True)
class SplitsWithRejects:
    """Solutions of ProcessBench's splits, and the unusable rows of their files."""

    solutions: dict[str, list[JudgedSolution]]
    """Solutions by name of the split, which is the file's name without `processbench_`."""
    rejects: dict[str, tuple[Reject, ...]]
    """Unusable rows by name of the split."""

    @property
    def num_rejected(self) -> dict[str, int]:
        """Number of unusable rows by split, only for splits that have unusable rows."""
        return {name: len(rejects) for name, rejects in self.rejects.items() if rejects}


def read_splits(files: Sequence[str], *, strict: bool = False) -> SplitsWithRejects:
    """Read the splits of ProcessBench.

    Args:
        files: files of the splits, one file per split.
        strict: whether an unusable row is an error; otherwise it is left out.

    Raises:
        ConfigError: two files belong to the same split.
        DataError: no row of a file can be used. With `strict`, also if a single row is unusable.
    """
    splits: dict[str, list[JudgedSolution]] = {}
    rejects: dict[str, tuple[Reject, ...]] = {}
    for file in files:
        name = Path(file).stem.removeprefix("processbench_")
        if name in splits:
            raise ConfigError(f"{file}: is a second file of the split {name}. Give each split once")
        left_out = RowRejects(file, strict=strict)
        splits[name] = read_processbench(file, left_out)
        rejects[name] = tuple(left_out.found)
    return SplitsWithRejects(solutions=splits, rejects=rejects)


def warn_of_splits_without_f1(splits: Splits) -> None:
    """Log a warning for each split that has no F1, because all or none of its solutions have an
    error.
    """
    for name, rows in splits.items():
        if (missing := describe_missing_solutions(rows)) is not None:
            logger.warning(
                "the split %s holds no solution %s, so it has no F1, and there is no mean F1",
                name,
                missing,
            )


def describe_missing_solutions(rows: Sequence[JudgedSolution]) -> str | None:
    """Return the kind of solutions that is missing, with or without an error.

    Return None if both kinds are present. For no solutions, return "with an error".
    """
    wrong = sum(row.first_error is not None for row in rows)
    if 0 < wrong < len(rows):
        return None
    return "without an error" if wrong else "with an error"


def write_results(
    result: ProcessBenchResult,
    splits: Splits,
    predictions: Predictions,
    reasons: LeftOutReasons,
    rejects: Mapping[str, Sequence[Reject]],
    out: str | None,
) -> None:
    """Write the measures, the predictions and the solutions that were left out to a folder.

    Args:
        result: measures of all splits.
        splits: solutions by name of the split.
        predictions: 0-based index of the predicted first error, or None for no error, by split and
            solution id.
        reasons: reasons why solutions have no prediction, by split and solution id.
        rejects: unusable rows by name of the split.
        out: folder; None writes nothing.
    """
    if out is None:
        return
    folder = make_out_folder(out)
    (folder / "processbench.json").write_text(format_json(result), encoding="utf-8")
    (folder / "processbench.md").write_text(
        render_markdown([make_processbench_grid(result)]), encoding="utf-8"
    )
    with (folder / LEFT_OUT).open("w", encoding="utf-8") as file:
        for name, rows_out in rejects.items():
            for reject in rows_out:
                file.write(json.dumps({"split": name, **reject.content()}) + "\n")
        for name, by_solution in reasons.items():
            for identity, left_out in by_solution.items():
                content = {"split": name, "id": identity, "reason": left_out.reason_code}
                content["detail"] = shorten_detail(left_out.detail)
                file.write(json.dumps(content, ensure_ascii=False) + "\n")
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for name, rows in splits.items():
            for row in rows:
                if row.id in predictions[name]:
                    predicted = {
                        "split": name,
                        "id": row.id,
                        "label": -1 if row.first_error is None else row.first_error,
                        "prediction": (
                            -1 if predictions[name][row.id] is None else predictions[name][row.id]
                        ),
                    }
                    file.write(json.dumps(predicted, ensure_ascii=False) + "\n")


@dataclass(frozen=True, kw_only=True)
class GoldReport:
    """Counts of solutions that were written with the gold answer of their problem."""

    num_from_files: int
    """Number of solutions whose gold answer comes from the files of golds."""
    num_from_solutions: int
    """Number of solutions whose gold answer is the boxed answer of a solution marked as right."""
    ids_without_gold: tuple[str, ...]
    """Ids of solutions that were left out because no gold answer is known."""
    rejects: tuple[Reject, ...]
    """Unusable rows of the files."""


def add_golds_to_files(
    files: Sequence[str], golds: Sequence[str], out: str, *, strict: bool = False
) -> GoldReport:
    r"""Write ProcessBench's solutions with gold answers, as input of a labelling job.

    A row of the output has `problem`, `answer` and `steps`. The gold answer of a problem is the
    answer of the same problem text in a file of golds. If there is none, it is the boxed answer of
    the solutions whose final answer is marked as right, if all these answers agree.

    Args:
        files: files of ProcessBench's splits.
        golds: files of problems with answers, or `hf:NAME`.
        out: JSON Lines file, which is written in one piece.
        strict: whether an unusable row is an error; otherwise it is left out.

    Raises:
        DataError: a file cannot be used, or no gold answer is known.
    """
    prepare_output_file(out, "-o ")
    gold_by_text = {
        remove_all_whitespace(p.text): p.answer for source in golds for p in read_problems(source)
    }
    read = read_splits(files, strict=strict)
    judged = [solution for rows in read.solutions.values() for solution in rows]
    boxed: dict[str, dict[str, str]] = defaultdict(dict)
    for solution in judged:
        marked = bool(solution.answer_right) and r"\boxed" in solution.steps[-1]
        if marked and (answer := extract_answer(solution.steps[-1])):
            boxed[remove_all_whitespace(solution.problem)].setdefault(answer_key(answer), answer)
    agreed = {
        text: next(iter(answers.values())) for text, answers in boxed.items() if len(answers) == 1
    }
    lines, without, num_from_files = [], [], 0
    for solution in judged:
        text = remove_all_whitespace(solution.problem)
        answer = gold_by_text.get(text, agreed.get(text))
        if answer is None:
            without.append(solution.id)
            continue
        num_from_files += text in gold_by_text
        lines.append(
            json.dumps(
                {"problem": solution.problem, "answer": answer, "steps": solution.steps},
                ensure_ascii=False,
            )
        )
    if not lines:
        raise DataError(
            f"{', '.join(files)}: no problem has a gold answer. Pass files of problems with "
            "answers as --golds"
        )
    write_atomically(Path(out), "".join(line + "\n" for line in lines).encode())
    return GoldReport(
        num_from_files=num_from_files,
        num_from_solutions=len(lines) - num_from_files,
        ids_without_gold=tuple(without),
        rejects=tuple(reject for rejects in read.rejects.values() for reject in rejects),
    )
