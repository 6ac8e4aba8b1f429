"""Measures the labels of a labelling run against a source of truth, and writes a report."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel.annotate.folder import AnnotationFolder, collect_human_truth
from mclabel.annotate.items import hash_solution_texts
from mclabel.annotate.storage import is_annotation_folder
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Counts, LabeledSolution
from mclabel.data.readers.judged import (
    JudgedSolution,
    read_prm800k,
    read_processbench,
    to_judged_solutions,
)
from mclabel.data.readers.solutions import RowRejects
from mclabel.evaluate.labels.calibration import count_independent_rollouts
from mclabel.evaluate.labels.quality import has_exact_truth
from mclabel.evaluate.labels.report import ALL, LabelReport, measure_labels
from mclabel.evaluate.labels.show import plot_group_calibration, plot_values_by_position
from mclabel.evaluate.labels.tables import make_label_grids
from mclabel.evaluate.labels.truth import (
    Truth,
    check_same_problem_texts,
    find_exact_truth,
    make_truth_from_judgements,
)
from mclabel.run.outputs import FIGURES, check_output_is_usable, make_output_folder
from mclabel.run.shards.labels import iter_label_tables, read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.show.figures import render_markdown, save_plot
from mclabel.show.texts import format_json

logger = logging.getLogger(__name__)


def evaluate_labels(shards: str, truth: str | None, out: str | None, *, seed: int) -> LabelReport:
    """Measure a run's labels against the truth, and write labels.json, labels.md and plots.

    Args:
        shards: folder or URL of the run.
        truth: source of the truth: `exact`, `processbench:FILE` or only FILE, `prm800k:FILE`,
            `run:FOLDER`, or `people:FOLDER` of `mclabel annotate` or only FOLDER. None means
            `exact` if the problems are of a built-in domain, and otherwise no truth.
        out: output folder, made if it is missing; None writes no files.
        seed: seed of the bootstrap.

    Raises:
        ConfigError: `truth` has another form.
        DataError: the truth's file cannot be used, or has no solution of the run.
    """
    check_out_folder(out)
    rows = list(read_labels(Store(shards)))
    if not rows:
        raise DataError(
            f"{shards}: its shards hold no labelled solutions. Give a run of `mclabel label`"
        )
    kind, _, source = (truth or ("exact" if has_exact_truth(rows) else "")).partition(":")
    loaded_truth = _read_truth(kind, source, rows)
    if loaded_truth is not None and not loaded_truth.first_errors:
        raise DataError(
            f"--truth {truth}: holds labels for none of the {len(rows)} solutions of {shards}, "
            f"the first being {rows[0].solution.id} of problem {rows[0].problem.id}. Solutions "
            "are matched by the texts of problem and solution, so both places must have the same "
            "texts. Of another run, only solutions with a decided first error, or none, count"
        )
    reference = None
    if kind == "run":
        reference = _read_reference_counts(Store(shards), Store(source), rows[0].values_of)
    report = measure_labels(
        rows,
        loaded_truth,
        reference,
        learned_error_rates=_read_judge_error_rates(Store(shards), rows),
        seed=seed,
    )
    if out is not None:
        _write_report(report, make_out_folder(out))
    return report


def check_interval_width(width: float | None) -> None:
    """Raise an error if a width is not possible for an interval of a share.

    Raises:
        ConfigError: the width is not in (0, 1).
    """
    if width is not None and not 0 < width < 1:
        raise ConfigError(f"--width {width}: must be in (0, 1). Give a width such as 0.1")


def explain_narrowing(report: LabelReport, width: float) -> str:
    """Return a sentence on the number of further solutions that would narrow an interval.

    The interval is that of `first_error_accuracy` over all solutions. Its width falls with the
    square root of the number of solutions, so n * (current width / width)^2 solutions are needed.

    Args:
        report: report with a truth.
        width: desired width of the interval, in (0, 1).
    """
    quality = report.groups[ALL].quality
    now = None if quality is None else quality.first_error_accuracy
    if quality is None or now is None or now.low is None or now.high is None:
        return "--width: there is no truth to compare with, so there is no interval to narrow"
    num_solutions, span = quality.num_solutions, now.high - now.low
    shown = (
        f"The interval of first errors that are labelled right is {span:.3f} wide on "
        f"{num_solutions:,} solutions"
    )
    if span <= width:
        return f"{shown}, as narrow as --width {width:g} asks"
    more = math.ceil(num_solutions * (span / width) ** 2 - 1e-9) - num_solutions
    return (
        f"{shown}. About {more:,} more solutions, drawn in the same way, would make it {width:g} "
        "wide. This is an estimate, since widths fall with the square root of the number"
    )


def make_out_folder(out: str) -> Path:
    """Return the folder for results, made if it is missing."""
    check_out_folder(out)
    return make_output_folder(out, "--out ")


def check_out_folder(out: str | None) -> None:
    """Raise an error if a path cannot be the output folder, before results are computed.

    Raises:
        ConfigError: the path is a URL.
        ShardError: the path is a file, is inside of a file, or cannot be written.
    """
    if out is not None:
        check_output_is_usable(out, FIGURES, key="--out ")


def _read_truth(kind: str, source: str, rows: Sequence[LabeledSolution]) -> Truth | None:
    if kind == "":
        return None
    if kind == "exact" and not source:
        return find_exact_truth(rows)
    if not source and kind.endswith((".jsonl", ".json", ".parquet", ".csv")):
        kind, source = "processbench", kind
    if not source and is_annotation_folder(kind):
        kind, source = "people", kind
    if kind == "people" and is_annotation_folder(source):
        return _read_people_truth(rows, source)
    if kind == "processbench" and source:
        return make_truth_from_judgements(
            "processbench", rows, _read_judged_solutions(read_processbench, source)
        )
    if kind == "prm800k" and source:
        return make_truth_from_judgements(
            "prm800k", rows, _read_judged_solutions(read_prm800k, source)
        )
    if kind == "run" and source:
        others = list(read_labels(Store(source)))
        check_same_problem_texts(rows, others, source)
        return make_truth_from_judgements("run", rows, to_judged_solutions(others))
    raise ConfigError(
        f"--truth {kind}{':' if source else ''}{source}: must be `exact`, processbench:FILE, "
        "prm800k:FILE, run:FOLDER or people:FOLDER (output of `mclabel annotate`). Give one of "
        "these"
    )


def _read_people_truth(rows: Sequence[LabeledSolution], folder: str) -> Truth:
    """Return the true first errors from people's labels.

    A solution about which people were not asked has no truth, even if it has the same text as a
    solution that they labelled.
    """
    annotated = AnnotationFolder.read(folder)
    digests = {item.id: item.digest for item in annotated.items}
    changed = [
        r
        for r in rows
        if hash_solution_texts(r) != digests.get(r.solution.id, hash_solution_texts(r))
    ]
    if changed:
        raise DataError(
            f"--truth {folder}: the texts of {len(changed):,} solutions of the run differ from "
            f"the texts that people labelled, the first being {changed[0].solution.id}. Give the "
            "run as it was when people labelled it, or label its solutions again in a new folder"
        )
    people = collect_human_truth(annotated)
    if people.num_unsure or people.num_open:
        logger.warning(
            "%s: %d solutions have no first error because people were unsure, gave up or called "
            "the problem bad, and %d solutions are not submitted yet. All of them are left out",
            folder,
            people.num_unsure,
            people.num_open,
        )
    truth = make_truth_from_judgements("people", rows, people.judged)
    own = {judgement.id for judgement in people.judged} & truth.first_errors.keys()
    if not own:
        return truth
    return replace(
        truth,
        first_errors={solution_id: truth.first_errors[solution_id] for solution_id in sorted(own)},
    )


def _read_judged_solutions(
    read: Callable[[str, RowRejects], list[JudgedSolution]], source: str
) -> list[JudgedSolution]:
    """Return the solutions in a file of people's labels; unusable rows are left out and logged."""
    left_out = RowRejects(source)
    judged = read(source, left_out)
    if left_out.found:
        first = left_out.found[0]
        logger.warning(
            "%s: %d rows cannot be used and are left out, the first being row %s: %s",
            source,
            len(left_out.found),
            first.row,
            first.detail,
        )
    return judged


def _read_reference_counts(
    measured: Store, reference: Store, completer: str
) -> Mapping[str, Counts]:
    """Return the counts of one completer's rollouts in the reference run, by prefix id.

    Rollouts that both runs share are left out. If they cannot be identified, the result is empty.

    Args:
        measured: store of the run whose labels are measured.
        reference: store of another run of the same solutions.
        completer: name of the completer, which is the model that continued the prefixes.
    """
    metadata = [
        [table_metadata for table_metadata, _ in iter_label_tables(store)]
        for store in (measured, reference)
    ]
    if all(table_metadata["rollouts"] for run in metadata for table_metadata in run):
        rollouts = (r for r in read_rollouts(reference) if r.completer == completer)
        return count_independent_rollouts(read_rollouts(measured), rollouts)
    seeds = [
        {table_metadata.get("config", {}).get("seed") for table_metadata in run} for run in metadata
    ]
    if seeds[0] & seeds[1]:
        logger.warning(
            "%s and %s were sampled with the same seed, and at least one of them has not kept its "
            "rollouts. Shared rollouts cannot be identified, so interval coverage is not measured",
            measured.location,
            reference.location,
        )
        return {}
    return {
        step.prefix_id: row.value_counts(number)
        for row in read_labels(reference)
        if row.values_of == completer
        for number, step in enumerate(row.steps)
    }


def _read_judge_error_rates(store: Store, rows: Sequence[LabeledSolution]) -> Mapping[str, Any]:
    """Return the error rates that `mclabel combine` estimated, by judge and name of the rate.

    They are empty for other runs.
    """
    if all(row.consensus is None for row in rows):
        return {}
    metadata, _ = next(iter_label_tables(store))
    rates: Mapping[str, Any] = metadata.get("judge_rates", {})
    return rates


def _write_report(report: LabelReport, folder: Path) -> None:
    (folder / "labels.json").write_text(format_json(report), encoding="utf-8")
    (folder / "labels.md").write_text(render_markdown(make_label_grids(report)), encoding="utf-8")
    everything = report.groups[ALL]
    plots = {
        "reliability": plot_group_calibration(everything),
        "positions": plot_values_by_position(everything),
    }
    for name, plot in plots.items():
        if plot is not None:
            save_plot(plot, folder / name)
